// A pool: ranks that share their experts, all ranks or those of one node, and what can be said of its slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel::internal {

struct Pool {
  std::span<const FixedLoad> loads;          // of its experts, [0, E)
  std::span<const std::int32_t> capacities;  // slots of its ranks; together at least E
  int num_slots = 0;                         // the sum of capacities
};

// How many slots hold each of so many experts.
inline void count_copies(std::span<const std::int32_t> expert_in, std::size_t num_experts,
                         std::vector<std::int32_t>& counts) {
  counts.assign(num_experts, 0);
  for (std::int32_t e : expert_in) ++counts[static_cast<std::size_t>(e)];
}

// The load of the heaviest rank, share(expert) being that of one copy. Experts rank after rank.
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

// Ranks that follow each other, and their slots.
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

// Ranks are dealt to nodes in order, node n from n P / nodes on.
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

// The experts in some slots, ascending; the slots then hold places in that list.
inline std::vector<std::int32_t> number_experts(std::span<std::int32_t> slots) {
  std::vector<std::int32_t> experts(slots.begin(), slots.end());
  std::ranges::sort(experts);
  experts.erase(std::ranges::unique(experts).begin(), experts.end());
  for (std::int32_t& e : slots)
    e = static_cast<std::int32_t>(std::ranges::lower_bound(experts, e) - experts.begin());
  return experts;
}

// A lower bound for a pool whose ranks have few slots: copies too large to stand j + 1 to a rank.
//
// If no rank is above x, a rank holds at most j copies above x / (j + 1). An expert of load w has at least
// ceil(w / x) copies; either all of them are above x / (j + 1), or there are ceil((j + 1) w / x) of them or
// more. With S slots, not all experts can be split that far: let as much of the large copies as must go be
// split, those first that need the fewest slots for each large copy, in fractions. If the slots do not
// suffice, nothing is at or below x.
//
// Without copies (as many slots as experts) also: the rank with the largest expert holds others beside it.
//
// Cost        a binary search over x for each j below the slots of a rank, each step E log E.
// Source      the fractional form of the bin-packing bounds of Martello and Toth (1990), with splitting.
//
// At least `low`, at most `high`, which a placement reaches.
FixedLoad slot_bound(const Pool& pool, FixedLoad low, FixedLoad high);

// A pool of few slots, searched whole: every choice of counts, and every packing of each.
//
// Method      depth first; counts by decreasing load of the expert, then the copies by decreasing load, each
//             onto the ranks that have space, of those that are alike only the first. What cannot be below
//             the best so far is left.
// Cost        exponential; cut off after a number of steps.
// Guarantee   unless cut off, the lightest heaviest rank there is.
//
// Which counts are looked at: any; those where no expert has more copies than the hottest; those where no
// expert has more copies than a hotter one.
enum class CountOrder { none, hottest, all };

// With an order there are fewer counts to look at.
inline bool fits_small_pool(const Pool& pool, CountOrder order = CountOrder::none) {
  return pool.num_slots <= (order == CountOrder::none ? 12 : 20);
}

struct SmallPoolAnswer {
  bool finished = false;  // not cut off: nothing else is below
  FixedLoad heaviest = 0;
  std::vector<std::int32_t> expert_in;  // rank after rank; empty where nothing below `known` was found
};

SmallPoolAnswer search_small_pool(const Pool& pool, FixedLoad known, bool distinct,
                                  CountOrder order = CountOrder::none);

}  // namespace evenkeel::internal
