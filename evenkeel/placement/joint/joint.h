// Balance and traffic together: homes chosen without the two stages, by predicted milliseconds.
//
// Fast        Up to some seconds. The two-stage answer, then changes of one layer at a time that lower the
//             predicted milliseconds; never worse than the two-stage answer. With free sizes the same from
//             the answer of equal sizes too: never worse than that, where it gives ranks equal totals (Eq.
//             13).
// Exact       One integer program (problem.h), for few experts and ranks.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

struct JointSolution {
  std::vector<std::vector<int>> rank_of_expert;  // [L][E]
  double objective_ms = 0;
  double bound_ms = 0;
  bool proven_optimal = false;  // at the bound, whatever gap was asked for
  bool ended_by_time = false;   // exact: its time is over, and more of it might help
  bool program_tried = true;    // exact: false where it has too many variables
};

// Both throw InvalidArgument where traffic from layer to layer is asked of a profile without transitions.
JointSolution place_jointly_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits);

}  // namespace evenkeel
