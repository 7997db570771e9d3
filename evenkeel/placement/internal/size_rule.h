// How many experts a rank may have: in one layer, and over all layers.
//
// `equal`: E/P in each layer, rounded up or down, where no capacity is smaller; ranks without capacity for
// that are full, and the others share the rest evenly. `free`: at least one and at most the capacity in each
// layer, and over all layers as even as capacities allow (Eq. 13; where P does not divide E L, rounded up or
// down). Any rank with capacity for it may be one that holds one more.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

using Sizes = std::vector<int>;  // [P] experts of each rank, or of each cluster
using Ranks = std::vector<int>;  // of the items of one layer: clusters [P] or experts [E]

// Where a count is dealt as evenly as capacities allow: between how many and how many each rank gets.
struct EvenShares {
  Sizes least;
  Sizes most;

  // As if dealt one by one, each to the first of the ranks that have fewest and still have space.
  Sizes dealt(int count) const;
};

struct SizeRule {
  int num_layers = 0;
  int num_experts = 0;
  int num_ranks = 0;
  Sizes capacities = {};  // [P] of a rank in one layer, at most E
  EvenShares in_layer = {};
  EvenShares in_all = {};   // over all layers (Eq. 13); empty: whatever a layer says
  bool ranks_alike = true;  // any rank may take the place of any other

  bool has_totals() const { return !in_all.least.empty(); }
};

// Throws Infeasible: more experts than capacity; with `free`, more ranks than experts.
SizeRule size_rule(const PlacementProblem& problem);

bool all_alike(const Sizes& sizes);

// Of the clusters 0..P-1 of a layer [E], and of all layers.
Sizes cluster_sizes(const std::vector<int>& cluster_of, int num_clusters);
std::vector<Sizes> sizes_of(const std::vector<std::vector<int>>& cluster_of, int num_clusters);

// The rule for cluster c lying on rank c: of the totals alone, and of each layer too.
bool totals_fit(const std::vector<Sizes>& sizes, const SizeRule& rule);
bool lie_as_named(const std::vector<Sizes>& sizes, const SizeRule& rule);

// For one layer, a new name for each cluster so that cluster c has a size that rank c may hold; empty: there
// is none.
std::vector<int> fit_to_ranks(const Sizes& sizes, const SizeRule& rule);

// New numbers [L][cluster] of the clusters of all layers, so that the sizes under each number add up to its
// total, or as near as swaps of two numbers in a layer bring them. Number r takes clusters of up to most[r]
// experts.
std::vector<Ranks> renumbered_to_totals(std::vector<Sizes> sizes, const Sizes& most, const Sizes& total,
                                        const Deadline& deadline);

// Experts in contiguous blocks, in sizes that the rule allows, the larger ones going round the ranks from
// layer to layer.
std::vector<std::vector<int>> contiguous_clusters(const SizeRule& rule);

}  // namespace evenkeel::internal
