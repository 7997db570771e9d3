// The machine, and what a step takes there: --ranks, --nodes and --topology; and for the commands that give a
// verdict (docs/evaluate.md) --cost, --device, --tflops, --link, --tokens-per-step, --expert-bytes and
// --horizon.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel::cli {

struct MachineOptions {
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::string topology;
};

void add_machine(CLI::App& app, MachineOptions& machine);
// Whether the command line says how many ranks there are.
bool is_machine_given(const CLI::App& app);
// Throws InvalidArgument where nobody says how many ranks there are, or two say it otherwise.
Topology topology_of(const CLI::App& app, const MachineOptions& machine);

struct TimeModel {
  std::string cost;
  std::string device;
  std::optional<double> tflops;
  std::optional<double> link;
  std::optional<std::int64_t> tokens_per_step;
  std::optional<double> expert_bytes;
  std::optional<std::int64_t> horizon;
};

void add_time_model(CLI::App& app, TimeModel& options);
// Of these, --cost, --device and --expert-bytes alone.
void add_rank_rates(CLI::App& app, TimeModel& options);
// Whether any of these options is given.
bool is_time_model_given(const CLI::App& app);
// Throws InvalidArgument where an option lacks what it needs, or would have no effect. `model`: of --model,
// or nothing; `step_tokens`: what --step-tokens says.
void require_time_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                        std::optional<std::int64_t> step_tokens);

// Of a model's config.json or its folder; without one only the link is known. Says on stderr what it assumes
// and what of a file of costs has no part. Throws InvalidArgument where the model has another number of
// experts than `recording`.
StepModel read_step_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                          std::optional<std::int64_t> step_tokens, const Topology& topology,
                          const std::string& recording, int num_experts);

}  // namespace evenkeel::cli
