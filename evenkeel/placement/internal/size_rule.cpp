#include "evenkeel/placement/internal/size_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

// Deals `count` one by one, each to the rank with the fewest that still has room.
std::vector<int> deal_evenly(int count, const std::vector<int>& rooms) {
  std::vector<int> dealt(rooms.size(), 0);
  for (int i = 0; i < count; ++i) {
    std::size_t fewest = rooms.size();
    for (std::size_t rank = 0; rank < rooms.size(); ++rank)
      if (dealt[rank] < rooms[rank] && (fewest == rooms.size() || dealt[rank] < dealt[fewest])) fewest = rank;
    ++dealt[fewest];
  }
  return dealt;
}

void require_room(const PlacementProblem& problem, const std::vector<int>& rooms) {
  const int experts = problem.profile.num_experts();
  const int room = std::accumulate(rooms.begin(), rooms.end(), 0);
  if (room < experts)
    throw Infeasible(fmt::format("{} ranks have room for {} experts a layer, and the model has {}",
                                 rooms.size(), room, experts));
  if (problem.sizes == ClusterSizes::free && experts < static_cast<int>(rooms.size()))
    throw Infeasible(
        fmt::format("with free sizes every rank has an expert in each layer; {} experts are too few "
                    "for {} ranks",
                    experts, rooms.size()));
}

}  // namespace

int room_of(const PlacementProblem& problem, RankId rank) {
  const int experts = problem.profile.num_experts();
  return std::min(experts, problem.topology.room(rank).value_or(experts));
}

EvenShares even_shares(int count, const std::vector<int>& rooms) {
  const auto dealt_at = [&](int level) {
    int sum = 0;
    for (int room : rooms) sum += std::min(room, level);
    return sum;
  };
  int level = 0;
  while (dealt_at(level + 1) <= count && dealt_at(level + 1) > dealt_at(level)) ++level;
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
