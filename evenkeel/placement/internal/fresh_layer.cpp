#include "evenkeel/placement/internal/fresh_layer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "evenkeel/placement/internal/copy_order.h"
#include "evenkeel/placement/internal/pool_solver.h"

namespace evenkeel {

namespace {

struct NodePool {
  std::size_t first_rank = 0;
  std::vector<std::int32_t> experts;
  std::vector<FixedLoad> loads;
  std::vector<std::int32_t> rooms;
};

// False where an expert is at home on several nodes.
bool list_pools(const LayerPlacement& before, std::span<const FixedLoad> loads,
                std::span<const std::int32_t> slots_per_rank, std::span<const std::int32_t> node_of_rank,
                std::vector<NodePool>& pools) {
  pools.resize(static_cast<std::size_t>(node_of_rank.back()) + 1);
  for (ExpertId e : indices<ExpertId>(before.num_experts())) {
    const std::int32_t node = node_of_rank[before.owner(e).offset()];
    for (RankId home : before.homes(e))
      if (node_of_rank[home.offset()] != node) return false;
    NodePool& pool = pools[static_cast<std::size_t>(node)];
    pool.experts.push_back(e.value());
    pool.loads.push_back(loads[e.offset()]);
  }
  for (std::size_t rank = 0; rank < slots_per_rank.size(); ++rank) {
    NodePool& pool = pools[static_cast<std::size_t>(node_of_rank[rank])];
    if (pool.rooms.empty()) pool.first_rank = rank;
    // More slots than experts cannot all be used: each is on a rank at most once.
    pool.rooms.push_back(std::min(slots_per_rank[rank], static_cast<std::int32_t>(pool.experts.size())));
  }
  return true;
}

struct Match {
  int common = 0;
  std::size_t made = 0;
  std::size_t old = 0;
};

// Of new and old ranks with as many slots, those that have experts in common, most of them first, and then by
// number.
std::vector<Match> matches_of(const LayerPlacement& before, const NodePool& pool,
                              std::span<const std::int32_t> expert_in) {
  std::vector<Match> matches;
  std::vector<int> common(pool.rooms.size(), 0);
  std::vector<std::size_t> met;
  std::size_t slot = 0;
  for (std::size_t made = 0; made < pool.rooms.size(); ++made) {
    const auto room = static_cast<std::size_t>(pool.rooms[made]);
    met.clear();
    for (std::int32_t local : expert_in.subspan(slot, room))
      for (RankId home : before.homes(ExpertId(pool.experts[static_cast<std::size_t>(local)]))) {
        const std::size_t old = home.offset() - pool.first_rank;
        if (pool.rooms[old] == pool.rooms[made] && common[old]++ == 0) met.push_back(old);
      }
    for (std::size_t old : met) {
      matches.push_back({common[old], made, old});
      common[old] = 0;
    }
    slot += room;
  }
  std::ranges::sort(matches, [](const Match& a, const Match& b) {
    if (a.common != b.common) return a.common > b.common;
    return a.made != b.made ? a.made < b.made : a.old < b.old;
  });
  return matches;
}

// rank_of[new rank]: the old rank whose place it takes, of the same room.
std::vector<std::size_t> match_ranks(const LayerPlacement& before, const NodePool& pool,
                                     std::span<const std::int32_t> expert_in) {
  const std::size_t none = pool.rooms.size();
  std::vector<std::size_t> rank_of(none, none);
  std::vector<bool> used(none, false);
  for (const Match& match : matches_of(before, pool, expert_in)) {
    if (used[match.old] || rank_of[match.made] != none) continue;
    used[match.old] = true;
    rank_of[match.made] = match.old;
  }
  // With nothing in common any rank with as many slots is as good: the first that is left.
  std::map<std::int32_t, std::size_t> next;  // old ranks before it are used, by room
  for (std::size_t made = 0; made < none; ++made) {
    if (rank_of[made] != none) continue;
    std::size_t& old = next[pool.rooms[made]];
    while (used[old] || pool.rooms[old] != pool.rooms[made]) ++old;
    used[old] = true;
    rank_of[made] = old;
  }
  return rank_of;
}

}  // namespace

std::vector<std::vector<std::int32_t>> fresh_homes(const LayerPlacement& before,
                                                   std::span<const double> loads,
                                                   std::span<const std::int32_t> slots_per_rank,
                                                   std::span<const std::int32_t> node_of_rank,
                                                   const internal::Deadline& deadline) {
  std::vector<FixedLoad> fixed(loads.size());
  to_fixed(loads, fixed_scale(std::reduce(loads.begin(), loads.end(), 0.0)), fixed);
  std::vector<NodePool> pools;
  if (!list_pools(before, fixed, slots_per_rank, node_of_rank, pools)) return {};
  std::vector<std::vector<std::int32_t>> homes(loads.size());
  PoolSolver solver;
  CopyOrder copy_order;
  for (const NodePool& pool : pools) {
    if (deadline.passed()) return {};
    if (pool.experts.empty()) continue;
    const Pool of_node{pool.loads, pool.rooms, std::reduce(pool.rooms.begin(), pool.rooms.end())};
    const bool thorough = of_node.num_slots < PoolSolver::kFewSlots;
    const FixedLoad heaviest =
        solver.solve(of_node, 0, {.repeats = false, .thorough = thorough, .deadline = &deadline});
    std::vector<std::int32_t> expert_in(solver.expert_in().begin(), solver.expert_in().end());
    if (thorough && !deadline.passed()) copy_order.improve(of_node, heaviest, expert_in);
    const std::vector<std::size_t> rank_of = match_ranks(before, pool, expert_in);
    std::size_t slot = 0;
    for (std::size_t made = 0; made < pool.rooms.size(); ++made)
      for (std::int32_t k = 0; k < pool.rooms[made]; ++k) {
        const auto local = static_cast<std::size_t>(expert_in[slot++]);
        const auto rank = static_cast<std::int32_t>(pool.first_rank + rank_of[made]);
        std::vector<std::int32_t>& of_expert = homes[static_cast<std::size_t>(pool.experts[local])];
        if (!of_expert.empty() && of_expert.back() == rank) return {};  // ranks too unlike to separate copies
        of_expert.push_back(rank);
      }
  }
  return homes;
}

}  // namespace evenkeel
