#include "evenkeel/placement/internal/size_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

// As if dealt one by one, each to the first of the ranks that have fewest and still have space.
std::vector<int> deal_evenly(int count, const std::vector<int>& capacities) {
  const EvenShares shares = even_shares(count, capacities);
  std::vector<int> dealt = shares.least;
  std::int64_t left = count - std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0});
  for (std::size_t rank = 0; left > 0; ++rank)
    if (dealt[rank] < shares.most[rank]) {
      ++dealt[rank];
      --left;
    }
  return dealt;
}

void require_capacity(const PlacementProblem& problem, const std::vector<int>& capacities) {
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
    throw InvalidArgument("sizes", fmt::format("free, with {} experts in all layers", all),
                          fmt::format("at most {}, or equal", most_counted));
}

}  // namespace

int capacity_of(const PlacementProblem& problem, RankId rank) {
  const int experts = problem.profile.num_experts();
  return std::min(experts, problem.topology.capacity(rank).value_or(experts));
}

EvenShares even_shares(int count, const std::vector<int>& capacities) {
  const auto dealt_at = [&](int level) {
    std::int64_t sum = 0;
    for (int capacity : capacities) sum += std::min(capacity, level);
    return sum;
  };
  // The highest level that all ranks with capacity for it reach; where all capacities are filled, the largest
  // capacity.
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

bool SizeRule::ranks_alike() const {
  return std::ranges::all_of(most, [&](int size) { return size == most.front(); }) &&
         std::ranges::all_of(least, [&](int size) { return size == least.front(); });
}

SizeRule size_rule(const PlacementProblem& problem) {
  std::vector<int> capacities;
  for (RankId rank : indices<RankId>(problem.topology.num_ranks()))
    capacities.push_back(capacity_of(problem, rank));
  require_capacity(problem, capacities);
  const int experts = problem.profile.num_experts();
  if (problem.sizes == ClusterSizes::equal) {
    const std::vector<int> sizes = deal_evenly(experts, capacities);
    return {.least = sizes, .most = sizes, .total = {}};
  }
  SizeRule rule{.least = std::vector<int>(capacities.size(), 1), .most = capacities, .total = {}};
  std::vector<int> capacities_of_all = capacities;
  for (int& capacity : capacities_of_all) capacity *= problem.profile.num_layers();
  rule.total = deal_evenly(experts * problem.profile.num_layers(), capacities_of_all);
  return rule;
}

}  // namespace evenkeel::internal
