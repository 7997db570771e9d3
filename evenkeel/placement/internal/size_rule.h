// How many experts a rank may have: in one layer, and over all layers.
//
// `equal`: E/P in each layer, rounded up or down. A rank with less capacity is full, and the others share the
// rest evenly. `free`: in each layer at least one and at most the capacity. Over all layers, totals are as
// even as capacities allow (Eq. 13; rounded up or down where P does not divide E L). Any rank with enough
// capacity may be one whose total is rounded up.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

using Sizes = std::vector<int>;  // [P] experts of each rank, or of each cluster
using Ranks = std::vector<int>;  // the rank of each item of one layer: clusters [P] or experts [E]

// A count dealt as evenly as capacities allow: the fewest and the most that each rank can get.
struct EvenShares {
  Sizes least;
  Sizes most;

  // Deals `count` one by one, each to the first rank among those that have the fewest and still have space.
  Sizes dealt(int count) const;
};

struct SizeRule {
  int num_layers = 0;
  int num_experts = 0;
  int num_ranks = 0;
  Sizes capacities = {};  // [P] of each rank in one layer, at most E
  EvenShares in_layer = {};
  EvenShares in_all = {};   // over all layers (Eq. 13); empty: no such limit
  bool ranks_alike = true;  // any two ranks are interchangeable

  bool has_totals() const { return !in_all.least.empty(); }
};

// Throws Infeasible: more experts than capacity; with `free`, more ranks than experts.
SizeRule size_rule(const PlacementProblem& problem);

bool all_alike(const Sizes& sizes);

// Sizes of clusters 0..P-1, from the cluster of each expert: in one layer ([E]), and in all layers.
Sizes cluster_sizes(const std::vector<int>& cluster_of, int num_clusters);
std::vector<Sizes> sizes_of(const std::vector<std::vector<int>>& cluster_of, int num_clusters);

// Whether the rule holds with cluster c on rank c: totals_fit() checks only totals, sizes_fit_ranks() each
// layer too.
bool totals_fit(const std::vector<Sizes>& sizes, const SizeRule& rule);
bool sizes_fit_ranks(const std::vector<Sizes>& sizes, const SizeRule& rule);

// For one layer, renames clusters so that cluster c has a size that rank c may hold. Empty if that is
// impossible.
std::vector<int> fit_to_ranks(const Sizes& sizes, const SizeRule& rule);

// Renumbers the clusters of all layers, [L][cluster], so that the sizes under each number add up to its
// total, or come as near as swaps of two numbers within a layer can bring them. Number r takes clusters of up
// to most[r] experts.
std::vector<Ranks> renumbered_to_totals(std::vector<Sizes> sizes, const Sizes& most, const Sizes& total,
                                        const Deadline& deadline);

// Experts in contiguous blocks of sizes that the rule allows. The larger blocks rotate over the ranks from
// layer to layer.
std::vector<std::vector<int>> contiguous_clusters(const SizeRule& rule);

}  // namespace evenkeel::internal
