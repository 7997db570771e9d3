// Program 2 of MoETuner (Eq. 8-15): a rank for every cluster, so that little is sent over slow links.
//
// Fast        Milliseconds. Exact where the program falls apart into assignment problems, a dynamic program
// for
//             few ranks, else local search from a start that is best layer by layer.
// Exact       Each exchange alone where links are alike, permutations for up to 6 ranks, else one integer
// program
//             (problem.h).
#pragma once

#include <vector>

#include "evenkeel/placement/clusters/clusters.h"

namespace evenkeel {

// The rank of each cluster, for one given Clustering.
struct RankAssignment {
  std::vector<std::vector<int>> rank_of;  // [L][cluster]
  double objective = 0;                   // Eq. 8 (PairObjective), traffic / bandwidth
  double bound = 0;                       // nobody goes below with these clusters
  bool proven_optimal = false;
  bool program_tried = true;  // exact: false where it has too many variables
};

// Both throw InvalidArgument: where traffic from layer to layer is asked of a profile without transitions,
// and for a clustering that is not of the problem's layers, experts and ranks. The bound holds for these
// clusters.
RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits = {});
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits);

// The homes that the two programs say.
Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks);

}  // namespace evenkeel
