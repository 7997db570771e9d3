#include "evenkeel/placement/incremental/internal/fresh_layer.h"

#include <algorithm>
#include <numeric>

#include "evenkeel/placement/incremental/internal/rank_matching.h"
#include "evenkeel/placement/internal/pool/copy_order.h"
#include "evenkeel/placement/internal/pool/level_search.h"
#include "evenkeel/placement/internal/pool/pool_solver.h"

namespace evenkeel::internal {

namespace {

struct NodePool {
  std::size_t first_rank = 0;
  std::vector<std::int32_t> experts;
  std::vector<std::int32_t> capacities;
};

// Returns false if an expert has homes on several nodes.
bool list_pools(const LayerPlacement& before, std::span<const std::int32_t> slots_per_rank,
                std::span<const std::int32_t> node_of_rank, std::vector<NodePool>& pools) {
  pools.resize(static_cast<std::size_t>(node_of_rank.back()) + 1);
  for (ExpertId e : indices<ExpertId>(before.num_experts())) {
    const std::int32_t node = node_of_rank[before.owner(e).offset()];
    for (RankId home : before.homes(e))
      if (node_of_rank[home.offset()] != node) return false;
    NodePool& pool = pools[static_cast<std::size_t>(node)];
    pool.experts.push_back(e.value());
  }
  for (std::size_t rank = 0; rank < slots_per_rank.size(); ++rank) {
    NodePool& pool = pools[static_cast<std::size_t>(node_of_rank[rank])];
    if (pool.capacities.empty()) pool.first_rank = rank;
    // A rank holds each expert at most once, so it cannot use more slots than there are experts.
    pool.capacities.push_back(std::min(slots_per_rank[rank], static_cast<std::int32_t>(pool.experts.size())));
  }
  return true;
}

// rank_of[new rank]: the old rank, of the same capacity, whose number it takes.
std::vector<std::size_t> match_ranks(const LayerPlacement& before, const NodePool& pool,
                                     std::span<const std::int32_t> expert_in) {
  const std::size_t ranks = pool.capacities.size();
  std::vector<int> common(ranks * ranks, 0);
  std::size_t slot = 0;
  for (std::size_t made = 0; made < ranks; ++made) {
    for (std::int32_t k = 0; k < pool.capacities[made]; ++k) {
      const auto local = static_cast<std::size_t>(expert_in[slot++]);
      for (RankId home : before.homes(ExpertId(pool.experts[local])))
        ++common[made * ranks + home.offset() - pool.first_rank];
    }
    for (std::size_t old = 0; old < ranks; ++old)
      if (pool.capacities[old] != pool.capacities[made]) common[made * ranks + old] = -1;
  }
  return match_by_common(common, ranks);
}

// Places the experts, one pool at a time: with PoolSolver for one recording, with level_pool() for several.
class PoolPlacer {
 public:
  PoolPlacer(std::span<const double> loads, std::size_t num_experts, const Deadline& deadline)
      : loads_(loads), num_experts_(num_experts), deadline_(deadline), fixed_(num_experts) {
    if (num_recordings() == 1)
      to_fixed(loads, fixed_scale(std::reduce(loads.begin(), loads.end(), 0.0)), fixed_);
  }

  // The pool's expert in each of its slots; empty if no packing was found.
  std::vector<std::int32_t> place(const NodePool& pool) {
    return num_recordings() == 1 ? by_load(pool) : by_recordings(pool);
  }

 private:
  std::size_t num_recordings() const { return loads_.size() / num_experts_; }

  std::vector<std::int32_t> by_load(const NodePool& pool) {
    std::vector<FixedLoad> loads;
    for (std::int32_t e : pool.experts) loads.push_back(fixed_[static_cast<std::size_t>(e)]);
    const Pool of_node{loads, pool.capacities, std::reduce(pool.capacities.begin(), pool.capacities.end())};
    const bool thorough = of_node.num_slots < kFewSlots;
    const FixedLoad heaviest =
        solver_.solve(of_node, 0, {.repeats = false, .thorough = thorough, .deadline = &deadline_});
    std::vector<std::int32_t> expert_in(solver_.expert_in().begin(), solver_.expert_in().end());
    if (thorough && !deadline_.passed()) order_copies(of_node, heaviest, expert_in);
    return expert_in;
  }

  std::vector<std::int32_t> by_recordings(const NodePool& pool) {
    const std::size_t blocks = Lanes::blocks_for(num_recordings());
    std::vector<Lanes> lanes(pool.experts.size() * blocks);
    for (std::size_t i = 0; i < pool.experts.size(); ++i)
      for (std::size_t w = 0; w < num_recordings(); ++w)
        lanes[i * blocks + w / Lanes::kWidth].of[w % Lanes::kWidth] =
            static_cast<float>(loads_[w * num_experts_ + static_cast<std::size_t>(pool.experts[i])]);
    return level_pool({lanes, blocks, pool.capacities}, 1, deadline_).expert_in;
  }

  std::span<const double> loads_;
  std::size_t num_experts_;
  const Deadline& deadline_;
  std::vector<FixedLoad> fixed_;
  PoolSolver solver_;
};

}  // namespace

std::vector<std::vector<std::int32_t>> fresh_homes(const LayerPlacement& before,
                                                   std::span<const double> loads,
                                                   std::span<const std::int32_t> slots_per_rank,
                                                   std::span<const std::int32_t> node_of_rank,
                                                   const Deadline& deadline) {
  std::vector<NodePool> pools;
  if (!list_pools(before, slots_per_rank, node_of_rank, pools)) return {};
  const auto experts = static_cast<std::size_t>(before.num_experts());
  std::vector<std::vector<std::int32_t>> homes(experts);
  PoolPlacer placer(loads, experts, deadline);
  for (const NodePool& pool : pools) {
    if (deadline.passed()) return {};
    if (pool.experts.empty()) continue;
    const auto expert_in = placer.place(pool);
    if (expert_in.empty()) return {};
    const std::vector<std::size_t> rank_of = match_ranks(before, pool, expert_in);
    std::size_t slot = 0;
    for (std::size_t made = 0; made < pool.capacities.size(); ++made)
      for (std::int32_t k = 0; k < pool.capacities[made]; ++k) {
        const auto local = static_cast<std::size_t>(expert_in[slot++]);
        const auto rank = static_cast<std::int32_t>(pool.first_rank + rank_of[made]);
        std::vector<std::int32_t>& of_expert = homes[static_cast<std::size_t>(pool.experts[local])];
        // Copies of an expert cannot be separated.
        if (!of_expert.empty() && of_expert.back() == rank) return {};
        of_expert.push_back(rank);
      }
  }
  return homes;
}

}  // namespace evenkeel::internal
