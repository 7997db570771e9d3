// How many experts each rank may hold: in one layer, and over all layers (Eq. 13).
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::exact {

struct SizeRule {
  int num_layers = 0;
  int num_experts = 0;
  int num_ranks = 0;
  std::vector<int> least = {};  // [P] in one layer
  std::vector<int> most = {};   // [P] in one layer, room counted
  bool ranks_alike = true;      // all of the same room
  bool equal_totals = false;    // Eq. 13: over all layers between total_least and total_most
  int total_least = 0;
  int total_most = 0;
};

// Throws Infeasible if the rooms cannot hold the experts in such sizes.
SizeRule size_rule(const PlacementProblem& problem);

// The sizes of clusters, [L][P]. Throws InvalidArgument unless every expert has a cluster of 0..P-1.
std::vector<std::vector<int>> sizes_of(const std::vector<std::vector<int>>& cluster_of, const SizeRule& rule);

// Whether each rank's total is what the rule allows, cluster c lying on rank c.
bool totals_fit(const std::vector<std::vector<int>>& sizes, const SizeRule& rule);
// The same, and what each rank holds in each layer too.
bool lie_as_named(const std::vector<std::vector<int>>& sizes, const SizeRule& rule);

// For one layer, a new name for each cluster so that cluster c has a size that rank c may hold; empty: there
// is none.
std::vector<int> fit_to_ranks(const std::vector<int>& sizes, const SizeRule& rule);

// Experts in contiguous blocks, in sizes that the rule allows, the larger ones going round the ranks from
// layer to layer.
std::vector<std::vector<int>> contiguous_clusters(const SizeRule& rule);

}  // namespace evenkeel::exact
