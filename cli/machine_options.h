// Options for the machine: --ranks, --nodes and --topology. Commands that give a verdict (docs/evaluate.md)
// also have options for the time of a step: --cost, --device, --tflops, --link, --tokens-per-step,
// --expert-bytes and --horizon.
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
// Throws InvalidArgument if no option gives the number of ranks, or two options disagree.
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
// Adds only --cost, --device and --expert-bytes.
void add_rank_rates(CLI::App& app, TimeModel& options);
// Whether any of these options is given.
bool is_time_model_given(const CLI::App& app);
// Throws InvalidArgument if an option lacks another that it needs, or would have no effect. `model` is the
// value of --model, or empty; `step_tokens` is that of --step-tokens.
void require_time_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                        std::optional<std::int64_t> step_tokens);

// `model` is a config.json or its folder; if it is empty, only the link is known. Prints on stderr what it
// assumes and which parts of the cost file it does not use. Throws InvalidArgument if the model and
// `recording` have different numbers of experts.
StepModel read_step_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                          std::optional<std::int64_t> step_tokens, const Topology& topology,
                          const std::string& recording, int num_experts);

}  // namespace evenkeel::cli
