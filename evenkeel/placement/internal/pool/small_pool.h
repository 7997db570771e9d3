// A pool of few slots, searched whole: every choice of counts, and every packing of each.
//
// Method      depth first; counts by decreasing load of the expert, then the copies by decreasing load, each
//             onto the ranks that have space, of those that are alike only the first. What cannot be below
//             the best so far is left.
// Cost        exponential; cut off after a number of steps.
// Guarantee   unless cut off, the lightest heaviest rank there is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel {

struct Pool {
  std::span<const FixedLoad> loads;          // of its experts, [0, E)
  std::span<const std::int32_t> capacities;  // slots of its ranks; together at least E
  int num_slots = 0;                         // the sum of capacities
};

class SmallPool {
 public:
  // Which counts are looked at: any; those where no expert has more copies than the hottest; those where no
  // expert has more copies than a hotter one.
  enum class Order { none, hottest, all };

  static bool fits(const Pool& pool, Order order = Order::none) {
    return pool.num_slots <= (order == Order::none ? kMostSlots : kMostSlotsInOrder);
  }

  // Looks for what is below `known`. False: cut off, and nothing is known.
  bool search(const Pool& pool, FixedLoad known, bool distinct, Order order = Order::none);
  bool improved() const { return improved_; }
  FixedLoad heaviest() const { return best_; }  // `known` where nothing is below
  std::span<const std::int32_t> expert_in() const { return best_expert_in_; }

 private:
  static constexpr int kMostSlots = 12;
  static constexpr int kMostSlotsInOrder = 20;  // fewer counts to look at
  static constexpr int kMostSteps = 6000;

  void choose_counts(std::size_t position, int slots_left);
  int most_copies(std::size_t position) const;
  void pack();
  void place(std::size_t item);
  bool alike_tried(std::size_t rank, std::size_t first) const;
  void keep();

  Pool pool_;
  bool distinct_ = false;
  Order order_of_counts_ = Order::none;
  bool improved_ = false;
  int steps_left_ = 0;
  FixedLoad best_ = 0;
  std::vector<std::int32_t> order_;    // experts by decreasing load
  std::vector<std::int32_t> counts_;   // [E]
  std::vector<std::uint64_t> sorted_;  // keys of experts by the load of a copy
  std::vector<FixedLoad> item_load_;
  std::vector<std::int32_t> item_expert_;
  std::vector<std::size_t> rank_of_;             // [items]
  std::vector<FixedLoad> rank_load_;             // [P]
  std::vector<std::vector<std::int32_t>> held_;  // [P] experts, in the order they came
  std::vector<std::int32_t> best_expert_in_;
};

}  // namespace evenkeel
