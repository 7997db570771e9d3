// How many experts each rank may hold: in one layer, and over all layers (Eq. 13).
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::exact {

// The rule of internal/size_rule.h, without its choice of who holds one more: sizes are as even as capacities
// allow, and any rank with capacity for it may be the one. Whatever the fast solvers may answer, this allows.
struct SizeRule {
  int num_layers = 0;
  int num_experts = 0;
  int num_ranks = 0;
  std::vector<int> least = {};        // [P] in one layer
  std::vector<int> most = {};         // [P] in one layer
  std::vector<int> total_least = {};  // [P] over all layers (Eq. 13); empty: whatever least and most say
  std::vector<int> total_most = {};
  bool ranks_alike = true;

  bool has_totals() const { return !total_least.empty(); }
};

// Throws Infeasible: more experts than capacity; with free sizes, more ranks than experts.
SizeRule size_rule(const PlacementProblem& problem);

// [L][P] of clusters 0..P-1.
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
