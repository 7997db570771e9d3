#include "evenkeel/placement/exact/internal/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel::exact {

namespace {

void require_rooms(const SizeRule& rule, const PlacementProblem& problem) {
  for (RankId rank : indices<RankId>(rule.num_ranks)) {
    const auto room = problem.topology.room(rank);
    if (room && *room < rule.least[rank.offset()])
      throw Infeasible(
          fmt::format("rank {} has room for {} experts of a layer, and equal sizes need {}; "
                      "free sizes may fit",
                      rank.value(), *room, rule.least[rank.offset()]));
  }
  const int places = std::accumulate(rule.most.begin(), rule.most.end(), 0);
  if (places < rule.num_experts)
    throw Infeasible(
        fmt::format("the ranks have room for {} experts of a layer in these sizes, and there are {}", places,
                    rule.num_experts));
}

}  // namespace

SizeRule size_rule(const PlacementProblem& problem) {
  const bool equal = problem.sizes == ClusterSizes::equal;
  SizeRule rule{.num_layers = problem.profile.num_layers(),
                .num_experts = problem.profile.num_experts(),
                .num_ranks = problem.topology.num_ranks()};
  if (!equal && rule.num_experts < rule.num_ranks)
    throw Infeasible(fmt::format("{} experts cannot give each of {} ranks at least one (Eq. 7)",
                                 rule.num_experts, rule.num_ranks));
  const int most = equal ? (rule.num_experts + rule.num_ranks - 1) / rule.num_ranks
                         : rule.num_experts - rule.num_ranks + 1;
  for (RankId rank : indices<RankId>(rule.num_ranks)) {
    rule.least.push_back(equal ? rule.num_experts / rule.num_ranks : 1);
    rule.most.push_back(std::min(most, problem.topology.room(rank).value_or(most)));
    rule.ranks_alike = rule.ranks_alike && rule.most.back() == rule.most.front();
  }
  require_rooms(rule, problem);
  rule.equal_totals = !equal;
  const std::int64_t all = std::int64_t{rule.num_experts} * rule.num_layers;
  rule.total_least = static_cast<int>(all / rule.num_ranks);
  rule.total_most = static_cast<int>((all + rule.num_ranks - 1) / rule.num_ranks);
  return rule;
}

std::vector<std::vector<int>> sizes_of(const std::vector<std::vector<int>>& cluster_of,
                                       const SizeRule& rule) {
  if (cluster_of.size() != static_cast<std::size_t>(rule.num_layers))
    throw InvalidArgument("clustering", fmt::format("has {} layers", cluster_of.size()),
                          fmt::format("{}, as the profile has", rule.num_layers));
  std::vector<std::vector<int>> sizes;
  for (const std::vector<int>& layer : cluster_of) {
    if (layer.size() != static_cast<std::size_t>(rule.num_experts))
      throw InvalidArgument("clustering",
                            fmt::format("has {} experts in layer {}", layer.size(), sizes.size()),
                            fmt::format("{}, as the profile has", rule.num_experts));
    std::vector<int>& of_layer = sizes.emplace_back(static_cast<std::size_t>(rule.num_ranks));
    for (int cluster : layer) {
      if (cluster < 0 || cluster >= rule.num_ranks)
        throw InvalidArgument("clustering",
                              fmt::format("names cluster {} in layer {}", cluster, sizes.size() - 1),
                              fmt::format("0..{}", rule.num_ranks - 1));
      ++of_layer[static_cast<std::size_t>(cluster)];
    }
  }
  return sizes;
}

bool totals_fit(const std::vector<std::vector<int>>& sizes, const SizeRule& rule) {
  if (!rule.equal_totals) return true;
  for (std::size_t rank = 0; rank < rule.least.size(); ++rank) {
    int total = 0;
    for (const std::vector<int>& layer : sizes) total += layer[rank];
    if (total < rule.total_least || total > rule.total_most) return false;
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
  // Largest with roomiest fits whenever anything does.
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
