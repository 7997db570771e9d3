// How the time of a step depends on its memory budget.
//
// Reference The planner without a budget. Every time is a ratio to the reference of the same round.
// Rows      Without a budget: plain ep; with backward also plain ep and the planner, both recomputing the
//           whole step at once, unchunked. Then the planner in twice the bytes of the reference. Then for
//           each budget: the planner, and plain ep, which can only save memory by chunking.
// Shares    Relative to the worst rank's peak under plain ep without a budget, on the same routing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct CurveRow {
  Candidate candidate;
  // Empty if the budget is below the least.
  std::optional<CandidateFigures> figures;
  std::int64_t least_budget = 0;
  RoundRatio control;      // of the rounds in which this row was measured
  bool requested = false;  // one of the requested budgets
};

struct Curve {
  std::string scenario;
  CandidateFigures reference;
  CandidateFigures ep;  // plain ep without a budget
  std::vector<CurveRow> rows;

  double share_of_ep(std::int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(ep.worst_peak_bytes());
  }
};

struct Curves {
  StudySetup setup;
  std::vector<Curve> scenarios;
};

// Uses the set-up's first planner, and the costs in its budget.
Curves measure_curves(const StudySetup& setup, const std::vector<std::string>& scenarios,
                      const std::vector<RequestedBudget>& budgets, const NamedProgress& progress);

}  // namespace evenkeel
