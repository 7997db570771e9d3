// The exact solvers with a choice of methods. The public functions use all of them; tests compare each with
// the others.
#pragma once

#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel::internal {

struct Methods {
  bool subsets = true;       // program 1: a dynamic program over subsets, if it is small
  bool permutations = true;  // program 2: a dynamic program over permutations, if it is small
  bool alone = true;         // program 2: exchanges solved one by one, if they are independent
};

Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits,
                         const Methods& methods);
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits,
                                  const Methods& methods);

}  // namespace evenkeel::internal
