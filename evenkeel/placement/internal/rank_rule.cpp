#include "evenkeel/placement/internal/rank_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/equal_totals.h"

namespace evenkeel::internal {

RankRule::RankRule(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of)
    : total_(size_rule(problem).total) {
  for (RankId rank : indices<RankId>(problem.topology.num_ranks()))
    capacities_.push_back(capacity_of(problem, rank));
  for (const std::vector<int>& layer : cluster_of)
    sizes_.push_back(cluster_sizes(layer, problem.topology.num_ranks()));
  if (!has_totals()) return;
  std::vector<int> capacities_of_all = capacities_;
  for (int& capacity : capacities_of_all) capacity *= problem.profile.num_layers();
  totals_ = even_shares(problem.profile.num_experts() * problem.profile.num_layers(), capacities_of_all);
}

bool RankRule::fits_everywhere() const {
  const int capacity = std::ranges::min(capacities_);
  return std::ranges::all_of(sizes_, [&](const auto& sizes) { return std::ranges::max(sizes) <= capacity; });
}

// It does not matter which rank has the one more of totals that cannot be equal.
bool RankRule::totals_hold(const std::vector<Ranks>& ranks) const {
  std::vector<int> totals(capacities_.size(), 0);
  for (std::size_t layer = 0; layer < ranks.size(); ++layer)
    for (std::size_t c = 0; c < totals.size(); ++c)
      totals[static_cast<std::size_t>(ranks[layer][c])] += sizes_[layer][c];
  for (std::size_t rank = 0; rank < totals.size(); ++rank)
    if (totals[rank] < totals_.least[rank] || totals[rank] > totals_.most[rank]) return false;
  return true;
}

bool RankRule::holds(const std::vector<Ranks>& ranks) const {
  for (std::size_t layer = 0; layer < ranks.size(); ++layer)
    for (std::size_t c = 0; c < capacities_.size(); ++c)
      if (!fits(layer, c, static_cast<std::size_t>(ranks[layer][c]))) return false;
  return !has_totals() || totals_hold(ranks);
}

std::optional<std::vector<Ranks>> RankRule::find(const std::vector<std::vector<int>>& cluster_of) const {
  Ranks in_order(capacities_.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  std::vector<Ranks> ranks(cluster_of.size(), in_order);
  if (holds(ranks)) return ranks;
  ranks = has_totals() ? numbered(cluster_of) : by_size();
  if (holds(ranks)) return ranks;
  return std::nullopt;
}

std::vector<Ranks> RankRule::any(const std::vector<std::vector<int>>& cluster_of) const {
  if (auto ranks = find(cluster_of)) return *std::move(ranks);
  throw Infeasible(
      has_totals() ? "no ranks were found for these clusters that give every rank the same number of experts "
                     "over all layers (Eq. 13)"
                   : "a cluster has more experts than any rank left for it has capacity for");
}

std::vector<Ranks> RankRule::numbered(const std::vector<std::vector<int>>& cluster_of) const {
  std::vector<PartitionTask> tasks;
  for (const std::vector<int>& sizes : sizes_)
    tasks.push_back({.loads = {}, .least = sizes, .most = capacities_});
  std::vector<std::vector<int>> numbered = cluster_of;
  renumber_to_totals(tasks, total_, numbered, Deadline(SolveLimits{}));
  std::vector<Ranks> ranks(cluster_of.size(), Ranks(capacities_.size(), 0));
  for (std::size_t layer = 0; layer < ranks.size(); ++layer)
    for (std::size_t e = 0; e < cluster_of[layer].size(); ++e)
      ranks[layer][static_cast<std::size_t>(cluster_of[layer][e])] = numbered[layer][e];
  return ranks;
}

// Large clusters to large capacities.
std::vector<Ranks> RankRule::by_size() const {
  std::vector<int> largest_first(capacities_.size());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::ranges::stable_sort(largest_first, std::greater{},
                           [&](int rank) { return capacities_[static_cast<std::size_t>(rank)]; });
  std::vector<Ranks> ranks;
  for (const std::vector<int>& sizes : sizes_) {
    std::vector<std::size_t> large_first(sizes.size());
    std::iota(large_first.begin(), large_first.end(), 0);
    std::ranges::stable_sort(large_first, std::greater{}, [&](std::size_t c) { return sizes[c]; });
    ranks.emplace_back(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) ranks.back()[large_first[i]] = largest_first[i];
  }
  return ranks;
}

}  // namespace evenkeel::internal
