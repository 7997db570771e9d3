#include "evenkeel/placement/internal/fresh_layer.h"

#include <algorithm>
#include <numeric>

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

// rank_of[new rank]: the old rank whose place it takes, of the same room.
std::vector<std::size_t> match_ranks(const LayerPlacement& before, const NodePool& pool,
                                     std::span<const std::int32_t> expert_in) {
  struct Match {
    int common = 0;
    std::size_t made = 0;
    std::size_t old = 0;
  };
  std::vector<Match> matches;
  std::size_t slot = 0;
  for (std::size_t made = 0; made < pool.rooms.size(); ++made) {
    const auto room = static_cast<std::size_t>(pool.rooms[made]);
    for (std::size_t old = 0; old < pool.rooms.size(); ++old) {
      if (pool.rooms[old] != pool.rooms[made]) continue;
      Match match{0, made, old};
      const auto natives = before.natives(RankId(pool.first_rank + old));
      for (std::int32_t local : expert_in.subspan(slot, room))
        match.common +=
            std::ranges::binary_search(natives, ExpertId(pool.experts[static_cast<std::size_t>(local)]));
      matches.push_back(match);
    }
    slot += room;
  }
  std::ranges::stable_sort(matches, [](const Match& a, const Match& b) { return a.common > b.common; });
  std::vector<std::size_t> rank_of(pool.rooms.size(), pool.rooms.size());
  std::vector<bool> used(pool.rooms.size(), false);
  for (const Match& match : matches) {
    if (used[match.old] || rank_of[match.made] != pool.rooms.size()) continue;
    used[match.old] = true;
    rank_of[match.made] = match.old;
  }
  return rank_of;
}

}  // namespace

std::vector<std::vector<std::int32_t>> fresh_homes(const LayerPlacement& before,
                                                   std::span<const double> loads,
                                                   std::span<const std::int32_t> slots_per_rank,
                                                   std::span<const std::int32_t> node_of_rank) {
  std::vector<FixedLoad> fixed(loads.size());
  to_fixed(loads, fixed_scale(std::reduce(loads.begin(), loads.end(), 0.0)), fixed);
  std::vector<NodePool> pools;
  if (!list_pools(before, fixed, slots_per_rank, node_of_rank, pools)) return {};
  std::vector<std::vector<std::int32_t>> homes(loads.size());
  PoolSolver solver;
  for (const NodePool& pool : pools) {
    if (pool.experts.empty()) continue;
    const int slots = std::reduce(pool.rooms.begin(), pool.rooms.end());
    solver.solve({pool.loads, pool.rooms, slots}, 0,
                 {.repeats = false, .thorough = slots < PoolSolver::kFewSlots});
    const std::vector<std::size_t> rank_of = match_ranks(before, pool, solver.expert_in());
    std::size_t slot = 0;
    for (std::size_t made = 0; made < pool.rooms.size(); ++made)
      for (std::int32_t k = 0; k < pool.rooms[made]; ++k) {
        const auto local = static_cast<std::size_t>(solver.expert_in()[slot++]);
        const auto rank = static_cast<std::int32_t>(pool.first_rank + rank_of[made]);
        std::vector<std::int32_t>& of_expert = homes[static_cast<std::size_t>(pool.experts[local])];
        if (!of_expert.empty() && of_expert.back() == rank) return {};  // ranks too unlike to separate copies
        of_expert.push_back(rank);
      }
  }
  return homes;
}

}  // namespace evenkeel
