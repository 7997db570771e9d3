// When an objective counts as proven: one rule for every stage and solver.
#pragma once

#include <algorithm>

namespace evenkeel::internal {

// Two sums of doubles that are one number differ by rounding, some parts in 1e16 a term; and bounds of
// max/mean are lowered by 1e-12 so that rounding puts none above the truth. Whole numbers (P times Eq. 1)
// need no such tolerance: they are compared as they are.
constexpr double kSameNumber = 1e-9;

// The bound to tell of an objective: never above it, and the objective itself where only rounding is between.
inline double told_bound(double objective, double bound) {
  return objective - bound <= kSameNumber * objective ? objective : bound;
}

inline bool is_within_gap(double objective, double bound, double relative_gap) {
  return objective - bound <= relative_gap * objective;
}

// For answers of solvers. `solved_to_the_end`: whatever the bound says, nothing is better.
template <class Answer>
void conclude(Answer& answer, double& objective, double& bound, bool solved_to_the_end) {
  bound = solved_to_the_end ? objective : told_bound(objective, bound);
  answer.proven_optimal = bound == objective;
}

}  // namespace evenkeel::internal
