// How the time of a step depends on its memory budget.
//
// Reference The planner without a budget. Every time is a ratio to the reference's time in the same round.
// Rows      The first row is plain ep without a budget. With backward, plain ep and the planner follow, still
//           without a budget, both recomputing the whole step as one chunk. Then comes the planner with a
//           budget of twice the reference's bytes. Then, for each budget, the planner and plain ep, which can
//           save memory only by chunks.
// Shares    A budget's share is relative to the worst rank's peak under plain ep without a budget, with the
//           same routing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct CurveRow {
  Candidate candidate;
  // Empty if the budget is below the least budget.
  std::optional<CandidateFigures> figures;
  std::int64_t least_budget = 0;
  RoundRatio control;      // from the rounds in which this row was measured
  bool requested = false;  // true for a row of a requested budget
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

// Uses the first planner of the set-up and the costs in that planner's budget.
Curves measure_curves(const StudySetup& setup, const std::vector<std::string>& scenarios,
                      const std::vector<RequestedBudget>& budgets, const NamedProgress& progress);

}  // namespace evenkeel
