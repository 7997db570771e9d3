#include "evenkeel/placement/internal/program/sizes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::exact {

namespace {

bool all_the_same(const std::vector<int>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int each) { return each == numbers.front(); });
}

}  // namespace

SizeRule size_rule(const PlacementProblem& problem) {
  internal::size_rule(problem);  // for what it throws
  SizeRule rule{.num_layers = problem.profile.num_layers(),
                .num_experts = problem.profile.num_experts(),
                .num_ranks = problem.topology.num_ranks()};
  std::vector<int> capacities;
  for (RankId rank : indices<RankId>(rule.num_ranks))
    capacities.push_back(internal::capacity_of(problem, rank));
  if (problem.sizes == ClusterSizes::equal) {
    internal::EvenShares shares = internal::even_shares(rule.num_experts, capacities);
    rule.least = std::move(shares.least);
    rule.most = std::move(shares.most);
  } else {
    rule.least.assign(capacities.size(), 1);
    for (int capacity : capacities)
      rule.most.push_back(std::min(capacity, rule.num_experts - rule.num_ranks + 1));
    for (int& capacity : capacities) capacity *= rule.num_layers;
    internal::EvenShares shares = internal::even_shares(rule.num_experts * rule.num_layers, capacities);
    rule.total_least = std::move(shares.least);
    rule.total_most = std::move(shares.most);
  }
  rule.ranks_alike = all_the_same(rule.least) && all_the_same(rule.most) && all_the_same(rule.total_least) &&
                     all_the_same(rule.total_most);
  return rule;
}

std::vector<std::vector<int>> sizes_of(const std::vector<std::vector<int>>& cluster_of,
                                       const SizeRule& rule) {
  std::vector<std::vector<int>> sizes;
  for (const std::vector<int>& layer : cluster_of) {
    std::vector<int>& of_layer = sizes.emplace_back(static_cast<std::size_t>(rule.num_ranks));
    for (int cluster : layer) ++of_layer[static_cast<std::size_t>(cluster)];
  }
  return sizes;
}

bool totals_fit(const std::vector<std::vector<int>>& sizes, const SizeRule& rule) {
  if (!rule.has_totals()) return true;
  for (std::size_t rank = 0; rank < rule.least.size(); ++rank) {
    int total = 0;
    for (const std::vector<int>& layer : sizes) total += layer[rank];
    if (total < rule.total_least[rank] || total > rule.total_most[rank]) return false;
  }
  return true;
}

bool lie_as_named(const std::vector<std::vector<int>>& sizes, const SizeRule& rule) {
  for (const std::vector<int>& layer : sizes)
    for (std::size_t rank = 0; rank < layer.size(); ++rank)
      if (layer[rank] < rule.least[rank] || layer[rank] > rule.most[rank]) return false;
  return totals_fit(sizes, rule);
}

std::vector<int> fit_to_ranks(const std::vector<int>& sizes, const SizeRule& rule) {
  std::vector<std::size_t> clusters(sizes.size());
  std::iota(clusters.begin(), clusters.end(), std::size_t{0});
  std::vector<std::size_t> ranks = clusters;
  // The largest cluster on the rank with the largest capacity fits whenever anything does.
  std::stable_sort(clusters.begin(), clusters.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });
  if (!rule.ranks_alike)
    std::stable_sort(ranks.begin(), ranks.end(), [&](auto a, auto b) { return rule.most[a] > rule.most[b]; });
  std::vector<int> name(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int size = sizes[clusters[i]];
    if (size < rule.least[ranks[i]] || size > rule.most[ranks[i]]) return {};
    name[clusters[i]] = static_cast<int>(ranks[i]);
  }
  return name;
}

std::vector<std::vector<int>> contiguous_clusters(const SizeRule& rule) {
  std::vector<std::vector<int>> cluster_of;
  const auto ranks = static_cast<std::size_t>(rule.num_ranks);
  std::size_t next = 0;
  for (int layer = 0; layer < rule.num_layers; ++layer) {
    std::vector<int> size = rule.least;
    int left = rule.num_experts - std::accumulate(size.begin(), size.end(), 0);
    // Even sizes first; more on one rank only where the others are full.
    for (int even = *std::max_element(size.begin(), size.end()); left > 0; ++even)
      for (std::size_t i = 0; i < ranks && left > 0; ++i) {
        const std::size_t rank = (next + i) % ranks;
        if (size[rank] > even || size[rank] >= rule.most[rank]) continue;
        ++size[rank];
        if (--left == 0) next = (rank + 1) % ranks;
      }
    std::vector<int>& of_layer = cluster_of.emplace_back();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      of_layer.insert(of_layer.end(), static_cast<std::size_t>(size[rank]), static_cast<int>(rank));
  }
  return cluster_of;
}

}  // namespace evenkeel::exact
