// Placement by integer programming: MoETuner's two programs and their joint form, to a proven gap, on HiGHS.
#pragma once

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// Whether this build has the integer-program solver; without it the functions below throw Unsupported.
bool has_exact_solver();

// `start` is a feasible answer to begin from (the fast solver's).
Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits);
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits);
JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits);

}  // namespace evenkeel
