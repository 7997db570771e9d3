// The results of `evenkeel run`, for people and for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/accuracy.h"
#include "cli/batch.h"
#include "cli/experiment.h"

namespace evenkeel::cli {

// The sources of the batch and the homes.
struct RunInputs {
  std::optional<std::int64_t> layer;     // its number in the trace or the placement
  std::optional<std::string> placement;  // the file
};

void print_json(const ExperimentSetup& setup, const RunInputs& inputs, const Batch& batch,
                const CheckedFigures& checked);
void print_table(const ExperimentSetup& setup, const RunInputs& inputs, const Batch& batch,
                 const CheckedFigures& checked);

// Planners beside each other, for one batch or several.
struct Comparison {
  std::string name;
  CheckedFigures checked;
};
// `in_chunks`: with what the cutting of steps came to.
void print_comparisons(const std::vector<Comparison>& comparisons, bool in_chunks = false);
// The load of each rank under ep, and under the last planner.
void print_picture(const Comparison& comparison);

// One line on what the layer is: "8 ranks, 4096 tokens, 32 experts, top-4, 256 x 160 swiglu f32, forward".
std::string describe(const ExperimentSetup& setup);
// "-" for no answer.
std::string yes_or_no(const std::optional<bool>& answer);
// budget, least_budget, chunks and recompute, as programs read them.
nlohmann::ordered_json json_of(const Budget& budget, std::int64_t least_budget);
// A sentence on what the critical path is, for under every table that shows it.
extern const char* const kCriticalPath;

}  // namespace evenkeel::cli
