// When an objective counts as proven: one rule for every stage and solver.
#pragma once

#include <algorithm>

namespace evenkeel::internal {

// Two sums of doubles that should be equal differ by rounding, some parts in 1e16 a term. Bounds of max/mean
// are lowered by 1e-12 so that rounding does not lift one above the truth. Whole numbers (P times Eq. 1) need
// no tolerance: they are compared exactly.
constexpr double kSameNumber = 1e-9;

// The bound to report: never above the objective, and equal to it if they differ only by rounding.
inline double reported_bound(double objective, double bound) {
  return objective - bound <= kSameNumber * objective ? objective : bound;
}

inline bool is_within_gap(double objective, double bound, double relative_gap) {
  return objective - bound <= relative_gap * objective;
}

// Sets the reported bound and proven_optimal. `solved_to_the_end`: nothing is better, whatever the bound.
template <class Answer>
void conclude(Answer& answer, double& objective, double& bound, bool solved_to_the_end) {
  bound = solved_to_the_end ? objective : reported_bound(objective, bound);
  answer.proven_optimal = bound == objective;
}

}  // namespace evenkeel::internal
