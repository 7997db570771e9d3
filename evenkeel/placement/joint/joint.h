// Balance and traffic together: homes chosen without the two stages, by predicted milliseconds.
//
// Fast        Up to some seconds. The two-stage answer, then changes of one layer at a time that lower the
//             predicted milliseconds; never worse than the two-stage answer. With free sizes the same from
//             the answer of equal sizes too: never worse than that, where it gives ranks equal totals (Eq.
//             13).
// Copies      From any placement with copies, the same swaps, and slots that go to copies of other experts:
//             each rank keeps its number of slots. Never worse than the start.
// Exact       One integer program (problem.h), for few experts and ranks.
#pragma once

#include <span>
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

struct JointPlacement {
  Placement placement;
  double objective_ms = 0;
  double bound_ms = 0;  // of all placements with copies in these slots
};

// All throw InvalidArgument where traffic from layer to layer is asked of a profile without transitions.
JointSolution place_jointly_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits);
// least_max_over_mean [L]: the bound of replicate() for these slots. Copies are used evenly.
JointPlacement place_copies_jointly(const PlacementProblem& problem, const Placement& start,
                                    std::span<const double> least_max_over_mean, const SolveLimits& limits);

}  // namespace evenkeel
