// Two studies of the joint choice, which decides spill, chunks and kept tensors together under one budget.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel::study {

using Json = nlohmann::ordered_json;

struct Report {
  std::string text;
  Json json;
};

// Whether joint is ever slower than either alternative alone, under the same budget.
//
//   joint    the planner's plan or plain ep, whichever is predicted to be faster
//   spill    the planner's plan wherever it fits, in as many chunks as it then needs
//   chunks   plain ep
//
// Studies the set-up's first planner, with the costs of the set-up's budget. A budget given as a share is a
// share of plain ep's worst peak without a budget.
Report in_budgets(const StudySetup& setup, const std::vector<std::string>& scenarios,
                  const std::vector<RequestedBudget>& budgets, const NamedProgress& progress);

// A training run with recorded loads of all experts.
struct TrainingRun {
  std::string file;
  std::int64_t every = 100;
  bool as_recorded = true;  // as many tokens as the file has, instead of the set-up's number
};

// MemFine's three methods (arXiv 2511.21431) and the joint choice, over the steps of a training run.
//
// Runs one layer of every n-th step, forward and backward: the layer with the fullest rank. Its routing is
// seeded and has exactly the recorded loads, or loads in proportion to them if the number of tokens differs.
//
//   whole   method 1   plain ep, unchunked; backward recomputes the whole forward pass at once
//   fixed   method 2   plain ep in 8 equal chunks, recomputed chunk by chunk
//   mact    method 3   plain ep; memory-aware tuning takes 1, 2, 4 or 8 chunks, as the budget requires
//   joint   ours       under the same budget
//
// Studies the set-up's first planner. The number of experts is the file's. The default budget is half of
// method 1's worst peak. Throws ParseError for a file without loads [steps, layers, experts].
Report over_training(StudySetup setup, const TrainingRun& run, const RoundProgress& progress);

// Both reports explain how their times are measured.
inline constexpr std::string_view kCriticalPath =
    "critical path: the largest CPU time of any rank in each phase, summed over phases; no overlap";

// "8 ranks, 32 experts, top-4, 256 x 160 swiglu f32, forward"
inline std::string layer_line(const StudySetup& setup) {
  return fmt::format("{} ranks, {}, {}", setup.ranks, describe(setup.shape),
                     setup.backward ? "forward and backward" : "forward");
}

inline std::string rounds(int count) {
  return fmt::format("{} {}", count, count == 1 ? "round" : "rounds");
}

// "12 %"
inline std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

inline Json json_of_figures(const CandidateFigures& of) {
  return {{"critical_ms", of.critical_ms},
          {"chunks", of.chunks},
          {"recomputed_fraction", of.recomputed_fraction},
          {"transfers", of.transfers},
          {"peak_bytes", of.peak_bytes}};
}

}  // namespace evenkeel::study
