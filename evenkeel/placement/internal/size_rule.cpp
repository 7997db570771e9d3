#include "evenkeel/placement/internal/size_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

// As if dealt one by one, each to the first of the ranks that have fewest and still have room.
std::vector<int> deal_evenly(int count, const std::vector<int>& rooms) {
  const EvenShares shares = even_shares(count, rooms);
  std::vector<int> dealt = shares.least;
  std::int64_t left = count - std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0});
  for (std::size_t rank = 0; left > 0; ++rank)
    if (dealt[rank] < shares.most[rank]) {
      ++dealt[rank];
      --left;
    }
  return dealt;
}

void require_room(const PlacementProblem& problem, const std::vector<int>& rooms) {
  const int experts = problem.profile.num_experts();
  const auto room = std::accumulate(rooms.begin(), rooms.end(), std::int64_t{0});
  if (room < experts)
    throw Infeasible(fmt::format("{} ranks have room for {} experts a layer, and the model has {}",
                                 rooms.size(), room, experts));
  if (problem.sizes == ClusterSizes::free && experts < static_cast<int>(rooms.size()))
    throw Infeasible(
        fmt::format("with free sizes every rank has an expert in each layer; {} experts are too few "
                    "for {} ranks",
                    experts, rooms.size()));
  constexpr std::int64_t most_counted = std::numeric_limits<int>::max();
  if (const std::int64_t all = std::int64_t{experts} * problem.profile.num_layers();
      problem.sizes == ClusterSizes::free && all > most_counted)
    throw InvalidArgument("sizes", fmt::format("free, with {} experts in all layers", all),
                          fmt::format("at most {}, or equal", most_counted));
}

}  // namespace

int room_of(const PlacementProblem& problem, RankId rank) {
  const int experts = problem.profile.num_experts();
  return std::min(experts, problem.topology.room(rank).value_or(experts));
}

EvenShares even_shares(int count, const std::vector<int>& rooms) {
  const auto dealt_at = [&](int level) {
    std::int64_t sum = 0;
    for (int room : rooms) sum += std::min(room, level);
    return sum;
  };
  // The highest level that all ranks with room for it reach; where all rooms are filled, the largest room.
  int level = 0;
  for (int high = std::ranges::max(rooms); level < high;) {
    const int middle = level + (high - level) / 2 + 1;
    if (dealt_at(middle) <= count)
      level = middle;
    else
      high = middle - 1;
  }
  const bool some_get_more = dealt_at(level) < count;
  EvenShares shares;
  for (int room : rooms) {
    shares.least.push_back(std::min(room, level));
    shares.most.push_back(std::min(room, level + (some_get_more ? 1 : 0)));
  }
  return shares;
}

bool SizeRule::ranks_alike() const {
  return std::ranges::all_of(most, [&](int size) { return size == most.front(); }) &&
         std::ranges::all_of(least, [&](int size) { return size == least.front(); });
}

SizeRule size_rule(const PlacementProblem& problem) {
  std::vector<int> rooms;
  for (RankId rank : indices<RankId>(problem.topology.num_ranks())) rooms.push_back(room_of(problem, rank));
  require_room(problem, rooms);
  const int experts = problem.profile.num_experts();
  if (problem.sizes == ClusterSizes::equal) {
    const std::vector<int> sizes = deal_evenly(experts, rooms);
    return {.least = sizes, .most = sizes, .total = {}};
  }
  SizeRule rule{.least = std::vector<int>(rooms.size(), 1), .most = rooms, .total = {}};
  std::vector<int> rooms_of_all = rooms;
  for (int& room : rooms_of_all) room *= problem.profile.num_layers();
  rule.total = deal_evenly(experts * problem.profile.num_layers(), rooms_of_all);
  return rule;
}

}  // namespace evenkeel::internal
