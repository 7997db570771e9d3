// Balance and traffic together: homes chosen by predicted milliseconds, without the two stages.
//
// Fast        Up to some seconds. Starts from the two-stage answer and changes one layer at a time to lower
//             the predicted milliseconds; never worse than the start. With free sizes it also starts from the
//             answer of equal sizes; if that gives ranks equal totals (Eq. 13), the result is never worse
//             than it.
// Copies      Starts from any placement with copies. Tries the same swaps; slots may also go to copies of
//             other experts; each rank keeps its number of slots. Never worse than the start.
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
  bool proven_optimal = false;  // at the bound, whatever gap was requested
  bool ended_by_time = false;   // exact: time ran out, and more of it might help
  bool program_tried = true;    // exact: false where it has too many variables
};

struct JointPlacement {
  Placement placement;
  double objective_ms = 0;
  double bound_ms = 0;  // holds for all placements with copies in these slots
};

// All throw InvalidArgument for layer-to-layer traffic if the profile has no transitions.
JointSolution place_jointly_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits);
// least_max_over_mean [L]: the bounds that replicate() returns for these slots. Copies are used evenly.
JointPlacement place_copies_jointly(const PlacementProblem& problem, const Placement& start,
                                    std::span<const double> least_max_over_mean, const SolveLimits& limits);

}  // namespace evenkeel
