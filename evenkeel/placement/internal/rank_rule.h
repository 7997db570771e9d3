// Which ranks the clusters of a layer may have: those with capacity, and, with free sizes, with totals as in
// Eq. 13.
#pragma once

#include <optional>
#include <vector>

#include "evenkeel/placement/internal/cluster_traffic.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

class RankRule {
 public:
  RankRule(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);

  int size(std::size_t layer, std::size_t cluster) const { return sizes_[layer][cluster]; }
  bool fits(std::size_t layer, std::size_t cluster, std::size_t rank) const {
    return sizes_[layer][cluster] <= capacities_[rank];
  }
  // Every cluster fits every rank.
  bool fits_everywhere() const;
  // Only the totals over layers are left to hold.
  bool has_totals() const { return !total_.empty(); }
  bool holds(const std::vector<Ranks>& ranks) const;

  // Some ranks that the rule allows: cluster c on rank c if that is so; nothing: none were found, which is
  // not to say that there are none. `any` throws Infeasible then.
  std::optional<std::vector<Ranks>> find(const std::vector<std::vector<int>>& cluster_of) const;
  std::vector<Ranks> any(const std::vector<std::vector<int>>& cluster_of) const;

 private:
  std::vector<Ranks> numbered(const std::vector<std::vector<int>>& cluster_of) const;
  std::vector<Ranks> by_size() const;
  bool totals_hold(const std::vector<Ranks>& ranks) const;

  std::vector<std::vector<int>> sizes_;  // [L][P]
  std::vector<int> capacities_;          // [P]
  std::vector<int> total_;               // [P] that renumbering aims at; empty: any
  EvenShares totals_;                    // that hold
};

}  // namespace evenkeel::internal
