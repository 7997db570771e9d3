#include "evenkeel/placement/internal/size_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

void require_capacity(const PlacementProblem& problem, const Sizes& capacities) {
  const int experts = problem.profile.num_experts();
  const auto capacity = std::accumulate(capacities.begin(), capacities.end(), std::int64_t{0});
  if (capacity < experts)
    throw Infeasible(fmt::format("{} ranks have capacity for {} experts a layer, and the model has {}",
                                 capacities.size(), capacity, experts));
  if (problem.sizes == ClusterSizes::free && experts < static_cast<int>(capacities.size()))
    throw Infeasible(
        fmt::format("with free sizes every rank has an expert in each layer; {} experts are too few "
                    "for {} ranks",
                    experts, capacities.size()));
  constexpr std::int64_t most_counted = std::numeric_limits<int>::max();
  if (const std::int64_t all = std::int64_t{experts} * problem.profile.num_layers();
      problem.sizes == ClusterSizes::free && all > most_counted)
    throw InvalidArgument("sizes", fmt::format("free does not work with {} experts over all layers", all),
                          fmt::format("free for at most {} experts, or equal", most_counted));
}

EvenShares even_shares(int count, const Sizes& capacities) {
  const auto dealt_at = [&](int level) {
    std::int64_t sum = 0;
    for (int capacity : capacities) sum += std::min(capacity, level);
    return sum;
  };
  // Find the highest level that all ranks with enough capacity reach. If all capacities are filled, it is the
  // largest capacity.
  int level = 0;
  for (int high = std::ranges::max(capacities); level < high;) {
    const int middle = level + (high - level) / 2 + 1;
    if (dealt_at(middle) <= count)
      level = middle;
    else
      high = middle - 1;
  }
  const bool some_get_more = dealt_at(level) < count;
  EvenShares shares;
  for (int capacity : capacities) {
    shares.least.push_back(std::min(capacity, level));
    shares.most.push_back(std::min(capacity, level + (some_get_more ? 1 : 0)));
  }
  return shares;
}

}  // namespace

Sizes EvenShares::dealt(int count) const {
  Sizes dealt = least;
  std::int64_t left = count - std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0});
  for (std::size_t rank = 0; left > 0; ++rank)
    if (dealt[rank] < most[rank]) {
      ++dealt[rank];
      --left;
    }
  return dealt;
}

bool all_alike(const Sizes& sizes) {
  return std::ranges::adjacent_find(sizes, std::not_equal_to{}) == sizes.end();
}

SizeRule size_rule(const PlacementProblem& problem) {
  SizeRule rule{.num_layers = problem.profile.num_layers(),
                .num_experts = problem.profile.num_experts(),
                .num_ranks = problem.topology.num_ranks()};
  for (RankId rank : indices<RankId>(rule.num_ranks))
    rule.capacities.push_back(
        std::min(rule.num_experts, problem.topology.capacity(rank).value_or(rule.num_experts)));
  require_capacity(problem, rule.capacities);
  if (problem.sizes == ClusterSizes::equal) {
    rule.in_layer = even_shares(rule.num_experts, rule.capacities);
  } else {
    rule.in_layer.least.assign(rule.capacities.size(), 1);
    Sizes of_all_layers;
    for (int capacity : rule.capacities) {
      rule.in_layer.most.push_back(std::min(capacity, rule.num_experts - rule.num_ranks + 1));
      of_all_layers.push_back(capacity * rule.num_layers);
    }
    rule.in_all = even_shares(rule.num_experts * rule.num_layers, of_all_layers);
  }
  rule.ranks_alike = all_alike(rule.in_layer.least) && all_alike(rule.in_layer.most) &&
                     all_alike(rule.in_all.least) && all_alike(rule.in_all.most);
  return rule;
}

Sizes cluster_sizes(const std::vector<int>& cluster_of, int num_clusters) {
  Sizes sizes(static_cast<std::size_t>(num_clusters), 0);
  for (int cluster : cluster_of) ++sizes[static_cast<std::size_t>(cluster)];
  return sizes;
}

std::vector<Sizes> sizes_of(const std::vector<std::vector<int>>& cluster_of, int num_clusters) {
  std::vector<Sizes> sizes;
  for (const std::vector<int>& layer : cluster_of) sizes.push_back(cluster_sizes(layer, num_clusters));
  return sizes;
}

bool totals_fit(const std::vector<Sizes>& sizes, const SizeRule& rule) {
  if (!rule.has_totals()) return true;
  for (std::size_t rank = 0; rank < rule.capacities.size(); ++rank) {
    int total = 0;
    for (const Sizes& layer : sizes) total += layer[rank];
    if (total < rule.in_all.least[rank] || total > rule.in_all.most[rank]) return false;
  }
  return true;
}

bool sizes_fit_ranks(const std::vector<Sizes>& sizes, const SizeRule& rule) {
  for (const Sizes& layer : sizes)
    for (std::size_t rank = 0; rank < layer.size(); ++rank)
      if (layer[rank] < rule.in_layer.least[rank] || layer[rank] > rule.in_layer.most[rank]) return false;
  return totals_fit(sizes, rule);
}

std::vector<int> fit_to_ranks(const Sizes& sizes, const SizeRule& rule) {
  const auto& [least, most] = rule.in_layer;
  std::vector<std::size_t> clusters(sizes.size());
  std::iota(clusters.begin(), clusters.end(), std::size_t{0});
  std::vector<std::size_t> ranks = clusters;
  // If any fit exists, the largest cluster fits the rank with the largest capacity.
  std::ranges::stable_sort(clusters, std::greater{}, [&](std::size_t c) { return sizes[c]; });
  if (!rule.ranks_alike)
    std::ranges::stable_sort(ranks, std::greater{},
                             [&](std::size_t rank) { return rule.in_layer.most[rank]; });
  std::vector<int> name(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int size = sizes[clusters[i]];
    if (size < least[ranks[i]] || size > most[ranks[i]]) return {};
    name[clusters[i]] = static_cast<int>(ranks[i]);
  }
  return name;
}

std::vector<Ranks> renumbered_to_totals(std::vector<Sizes> sizes, const Sizes& most, const Sizes& total,
                                        const Deadline& deadline) {
  std::vector<int> above(total.size());  // experts beyond the total; negative if fewer
  std::vector<Ranks> cluster_at(sizes.size(), Ranks(total.size()));
  for (std::size_t rank = 0; rank < total.size(); ++rank) above[rank] = -total[rank];
  for (std::size_t layer = 0; layer < sizes.size(); ++layer) {
    std::iota(cluster_at[layer].begin(), cluster_at[layer].end(), 0);
    for (std::size_t rank = 0; rank < total.size(); ++rank) above[rank] += sizes[layer][rank];
  }
  const auto swap_if_nearer = [&](std::size_t layer, std::size_t a, std::size_t b) {
    Sizes& size = sizes[layer];
    const int moved = size[b] - size[a];
    // Half the decrease of the sum of squares.
    const std::int64_t gain = std::int64_t{moved} * (std::int64_t{above[b]} - above[a] - moved);
    if (gain <= 0 || size[a] > most[b] || size[b] > most[a]) return false;
    std::swap(cluster_at[layer][a], cluster_at[layer][b]);
    std::swap(size[a], size[b]);
    above[a] += moved;
    above[b] -= moved;
    return true;
  };
  const auto pass = [&] {
    bool improved = false;
    for (std::size_t layer = 0; layer < sizes.size(); ++layer)
      for (std::size_t a = 0; a < total.size(); ++a) {
        if (deadline.passed()) return false;
        for (std::size_t b = a + 1; b < total.size(); ++b) improved |= swap_if_nearer(layer, a, b);
      }
    return improved;
  };
  while (std::ranges::any_of(above, std::identity{}) && pass()) {
  }
  std::vector<Ranks> number = cluster_at;
  for (std::size_t layer = 0; layer < sizes.size(); ++layer)
    for (std::size_t rank = 0; rank < total.size(); ++rank)
      number[layer][static_cast<std::size_t>(cluster_at[layer][rank])] = static_cast<int>(rank);
  return number;
}

std::vector<std::vector<int>> contiguous_clusters(const SizeRule& rule) {
  std::vector<std::vector<int>> cluster_of;
  const auto ranks = static_cast<std::size_t>(rule.num_ranks);
  std::size_t next = 0;
  for (int layer = 0; layer < rule.num_layers; ++layer) {
    Sizes size = rule.in_layer.least;
    int left = rule.num_experts - std::accumulate(size.begin(), size.end(), 0);
    // Even sizes first; a rank gets more only when the others are full.
    for (int even = std::ranges::max(size); left > 0; ++even)
      for (std::size_t i = 0; i < ranks && left > 0; ++i) {
        const std::size_t rank = (next + i) % ranks;
        if (size[rank] > even || size[rank] >= rule.in_layer.most[rank]) continue;
        ++size[rank];
        if (--left == 0) next = (rank + 1) % ranks;
      }
    std::vector<int>& of_layer = cluster_of.emplace_back();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      of_layer.insert(of_layer.end(), static_cast<std::size_t>(size[rank]), static_cast<int>(rank));
  }
  return cluster_of;
}

}  // namespace evenkeel::internal
