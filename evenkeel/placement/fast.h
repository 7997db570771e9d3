// Placement in milliseconds, the joint form in up to some seconds: the two programs of MoETuner and their
// joint form without an integer-program solver, each with a lower bound.
#pragma once

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// All throw InvalidArgument: where traffic from layer to layer is asked of a profile without transitions (not
// cluster_fast), and for a clustering that is not of the problem's layers, experts and ranks.

// Program 1 (Eq. 1-7). The bound is of the same problem, for the same sizes.
Clustering cluster_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
// Program 2 (Eq. 8-15) for given clusters. The bound holds for these clusters.
RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits = {});
// Balance and traffic together, in predicted milliseconds.
JointSolution place_jointly_fast(const PlacementProblem& problem, const SolveLimits& limits = {});

}  // namespace evenkeel
