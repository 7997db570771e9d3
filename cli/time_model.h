// --cost, --device, --tflops, --link, --tokens-per-step, --expert-bytes and --horizon: what a step and a move
// take, by the model of docs/evaluate.md, for the commands that give a verdict.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel::cli {

struct TimeModel {
  std::string cost;
  std::string device;
  double tflops = 0;
  double link = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t expert_bytes = 0;
  std::int64_t horizon = 0;

  std::optional<double> steps_served() const;
};

void add_time_model(CLI::App& app, TimeModel& options);
// Whether any of these options is given.
bool is_time_model_given(const CLI::App& app);
// Throws InvalidArgument where an option lacks what it needs, or would have no effect. `step_tokens`: what
// --step-tokens says, or 0.
void require_time_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                        std::int64_t step_tokens);

// Of a model's config.json or its folder; without one only the link is known. Says on stderr what it assumes
// and what of a file of costs has no part. Throws InvalidArgument where the model has another number of
// experts than `recording`.
StepModel read_step_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                          std::int64_t step_tokens, const Topology& topology, const std::string& recording,
                          int num_experts);

}  // namespace evenkeel::cli
