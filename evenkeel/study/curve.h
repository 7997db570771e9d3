// The time that a step takes over the bytes that it may have.
//
// Reference  The planner without a budget; every time is a ratio to it, of the same round.
// Rows       Without a budget: plain ep, and with backward also plain ep and the planner that recompute the
//            whole step at once, unchunked. In twice the bytes that the reference takes. Then in each budget:
//            the planner, and plain ep, which chunks alone relieve.
// Shares     Of the worst rank's peak under plain ep without a budget, on the same routing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct CurveRow {
  Candidate candidate;
  // Nothing where the budget is below the least.
  std::optional<CandidateFigures> figures;
  std::int64_t least_budget = 0;
  RoundRatio control;  // of the rounds that this row was measured in
  bool asked = false;  // one of the budgets asked for
};

struct Curve {
  std::string scenario;
  CandidateFigures reference;
  CandidateFigures ep;  // without a budget
  std::vector<CurveRow> rows;

  double share_of_ep(std::int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(ep.worst_peak_bytes());
  }
};

struct Curves {
  StudySetup setup;
  std::vector<Curve> scenarios;
};

// Of the set-up's first planner, by the costs of its budget.
Curves measure_curves(const StudySetup& setup, const std::vector<std::string>& scenarios,
                      const std::vector<AskedBudget>& budgets, const NamedProgress& progress);

}  // namespace evenkeel
