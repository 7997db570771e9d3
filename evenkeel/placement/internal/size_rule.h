// How many experts a rank may have: in one layer, and over all layers.
//
// `equal`: E/P in each layer, rounded up or down, where no capacity is smaller; ranks without capacity for
// that are full, and the others share the rest evenly. `free`: at least one and at most the capacity in each
// layer, and over all layers as even as capacities allow (Eq. 13; where P does not divide E L, rounded up or
// down).
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

struct SizeRule {
  std::vector<int> least;  // [P] experts of a rank in one layer
  std::vector<int> most;   // [P]
  std::vector<int> total;  // [P] over all layers; empty: whatever least and most say

  // Clusters of any sizes may change ranks: no capacity tells ranks apart.
  bool ranks_alike() const;
};

// Throws Infeasible: more experts than capacity; with `free`, more ranks than experts.
SizeRule size_rule(const PlacementProblem& problem);

// Between how many and how many each rank gets where `count` is dealt as evenly as capacities allow, whoever
// gets one more.
struct EvenShares {
  std::vector<int> least;  // [P]
  std::vector<int> most;   // [P]
};
EvenShares even_shares(int count, const std::vector<int>& capacities);

// The experts a rank can hold in one layer, at most E.
int capacity_of(const PlacementProblem& problem, RankId rank);

}  // namespace evenkeel::internal
