// A pool: ranks that share their experts (all ranks, or those of one node), and bounds and searches on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel::internal {

struct Pool {
  std::span<const FixedLoad> loads;          // loads of the pool's experts, [0, E)
  std::span<const std::int32_t> capacities;  // slots of the pool's ranks; together at least E
  int num_slots = 0;                         // the sum of capacities
};

// Counts the slots that hold each expert.
inline void count_copies(std::span<const std::int32_t> expert_in, std::size_t num_experts,
                         std::vector<std::int32_t>& counts) {
  counts.assign(num_experts, 0);
  for (std::int32_t e : expert_in) ++counts[static_cast<std::size_t>(e)];
}

// The load of the heaviest rank; share(expert) is the load of one copy. `expert_in` lists experts rank after
// rank.
template <class Load, class F>
Load heaviest_rank(std::span<const std::int32_t> expert_in, std::span<const std::int32_t> capacities,
                   F share) {
  Load heaviest = 0;
  std::size_t slot = 0;
  for (std::int32_t capacity : capacities) {
    Load load = 0;
    for (std::int32_t k = 0; k < capacity; ++k) load += share(static_cast<std::size_t>(expert_in[slot++]));
    heaviest = std::max(heaviest, load);
  }
  return heaviest;
}

// A node: consecutive ranks, and their slots.
struct NodeSlots {
  std::size_t first_rank = 0;
  std::size_t num_ranks = 0;
  std::size_t first_slot = 0;
  std::size_t num_slots = 0;

  template <class T>
  std::span<T> ranks_of(std::span<T> of_ranks) const {
    return of_ranks.subspan(first_rank, num_ranks);
  }
  template <class T>
  std::span<T> slots_of(std::span<T> of_slots) const {
    return of_slots.subspan(first_slot, num_slots);
  }
};

// Splits the ranks over nodes in order; node n starts at rank n P / nodes.
inline std::vector<NodeSlots> nodes_of(std::span<const std::int32_t> capacities, std::size_t num_nodes) {
  std::vector<NodeSlots> nodes;
  std::size_t slot = 0;
  for (std::size_t n = 0; n < num_nodes; ++n) {
    NodeSlots node{.first_rank = n * capacities.size() / num_nodes, .first_slot = slot};
    node.num_ranks = (n + 1) * capacities.size() / num_nodes - node.first_rank;
    for (std::int32_t capacity : node.ranks_of(capacities))
      node.num_slots += static_cast<std::size_t>(capacity);
    slot += node.num_slots;
    nodes.push_back(node);
  }
  return nodes;
}

// Returns the distinct experts in some slots, ascending, and replaces the slots by indices into that list.
inline std::vector<std::int32_t> number_experts(std::span<std::int32_t> slots) {
  std::vector<std::int32_t> experts(slots.begin(), slots.end());
  std::ranges::sort(experts);
  experts.erase(std::ranges::unique(experts).begin(), experts.end());
  for (std::int32_t& e : slots)
    e = static_cast<std::int32_t>(std::ranges::lower_bound(experts, e) - experts.begin());
  return experts;
}

// A lower bound for a pool whose ranks have few slots. It counts copies that are too large for j + 1 of them
// to fit on one rank.
//
// Suppose no rank is above x. Then a rank holds at most j copies above x / (j + 1). An expert of load w has
// at least ceil(w / x) copies. Either these are large, above x / (j + 1), or the expert has at least ceil((j
// + 1) w / x) copies. S slots do not suffice to split all experts that far. So split only as many large
// copies as the ranks cannot hold: first those that need the fewest slots per large copy; fractions of a copy
// are allowed. If the slots do not suffice, no placement is at or below x.
//
// Without copies (as many slots as experts) a second bound holds: the rank with the largest expert holds
// other experts too.
//
// Cost        a binary search over x for each j below the slots of a rank; each step takes E log E.
// Source      the fractional form of the bin-packing bounds of Martello and Toth (1990), with splitting.
//
// The result is at least `low` and at most `high`; some placement must reach `high`.
FixedLoad slot_bound(const Pool& pool, FixedLoad low, FixedLoad high);

// Complete search of a pool of few slots: every choice of counts, and every packing of each.
//
// Method      depth first: counts by decreasing load of the expert, then copies by decreasing load. A copy is
//             tried on each rank that has space, identical ranks only once. Branches that cannot be below the
//             best so far are cut.
// Cost        exponential; cut off after a number of steps.
// Guarantee   unless cut off, no placement has a lighter heaviest rank.
//
// Which counts are tried: `none` tries all; `hottest` only those where no expert has more copies than the
// hottest; `all` only those where no expert has more copies than a hotter one.
enum class CountOrder { none, hottest, all };

// With `hottest` or `all` fewer counts are tried, so larger pools fit.
inline bool fits_small_pool(const Pool& pool, CountOrder order = CountOrder::none) {
  return pool.num_slots <= (order == CountOrder::none ? 12 : 20);
}

struct SmallPoolAnswer {
  bool finished = false;  // true: not cut off, so no other placement is below
  FixedLoad heaviest = 0;
  std::vector<std::int32_t> expert_in;  // rank after rank; empty if nothing below `known` was found
};

SmallPoolAnswer search_small_pool(const Pool& pool, FixedLoad known, bool distinct,
                                  CountOrder order = CountOrder::none);

}  // namespace evenkeel::internal
