// Which ranks the clusters of a layer may have: they must have enough capacity and, with free sizes, meet the
// totals of Eq. 13.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

// 0, 1, ... P-1.
inline Ranks in_order(std::size_t num_ranks) {
  Ranks ranks(num_ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class RankRule {
 public:
  // `sizes` [L][P] are the sizes of the clusters.
  RankRule(SizeRule rule, std::vector<Sizes> sizes) : rule_(std::move(rule)), sizes_(std::move(sizes)) {}

  std::size_t num_layers() const { return sizes_.size(); }
  int size(std::size_t layer, std::size_t cluster) const { return sizes_[layer][cluster]; }
  bool fits(std::size_t layer, std::size_t cluster, std::size_t rank) const {
    return sizes_[layer][cluster] <= rule_.capacities[rank];
  }
  bool fits(std::size_t layer, const Ranks& ranks) const {
    for (std::size_t c = 0; c < ranks.size(); ++c)
      if (!fits(layer, c, static_cast<std::size_t>(ranks[c]))) return false;
    return true;
  }
  // Whether every cluster fits every rank.
  bool fits_everywhere() const {
    const int capacity = std::ranges::min(rule_.capacities);
    return std::ranges::all_of(sizes_,
                               [&](const Sizes& sizes) { return std::ranges::max(sizes) <= capacity; });
  }
  // True with free sizes: totals over all layers must hold.
  bool has_totals() const { return rule_.has_totals(); }
  bool holds(const std::vector<Ranks>& ranks) const {
    std::vector<Sizes> on_rank = sizes_;
    for (std::size_t layer = 0; layer < ranks.size(); ++layer) {
      if (!fits(layer, ranks[layer])) return false;
      for (std::size_t c = 0; c < ranks[layer].size(); ++c)
        on_rank[layer][static_cast<std::size_t>(ranks[layer][c])] = sizes_[layer][c];
    }
    return totals_fit(on_rank, rule_);
  }

  // Puts cluster c on rank c.
  std::vector<Ranks> as_named() const {
    return std::vector<Ranks>(sizes_.size(), in_order(rule_.capacities.size()));
  }
  // find() returns ranks that the rule allows, cluster c on rank c if possible. It returns nothing if it
  // finds none, although some may exist; any() then throws Infeasible.
  std::optional<std::vector<Ranks>> find() const {
    std::vector<Ranks> ranks = as_named();
    if (holds(ranks)) return ranks;
    ranks = has_totals() ? renumbered_to_totals(sizes_, rule_.capacities,
                                                rule_.in_all.dealt(rule_.num_experts * rule_.num_layers),
                                                Deadline(SolveLimits{}))
                         : by_size();
    if (holds(ranks)) return ranks;
    return std::nullopt;
  }
  std::vector<Ranks> any() const {
    if (auto ranks = find()) return *std::move(ranks);
    throw Infeasible(
        has_totals()
            ? "no assignment of these clusters to ranks was found that gives every rank the same number of "
              "experts over all layers (Eq. 13); raise the capacities, or use sizes equal"
            : "a cluster has more experts than the capacity of any rank left for it; raise the capacities");
  }

 private:
  // Matches large clusters with large capacities.
  std::vector<Ranks> by_size() const {
    const auto large_first = [](const Sizes& sizes) {
      Ranks order = in_order(sizes.size());
      std::ranges::stable_sort(order, std::greater{},
                               [&](int i) { return sizes[static_cast<std::size_t>(i)]; });
      return order;
    };
    const Ranks rank = large_first(rule_.capacities);
    std::vector<Ranks> ranks;
    for (const Sizes& sizes : sizes_) {
      const Ranks cluster = large_first(sizes);
      ranks.emplace_back(sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i)
        ranks.back()[static_cast<std::size_t>(cluster[i])] = rank[i];
    }
    return ranks;
  }

  SizeRule rule_;
  std::vector<Sizes> sizes_;  // [L][P]
};

}  // namespace evenkeel::internal
