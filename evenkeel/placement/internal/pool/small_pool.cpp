#include <algorithm>
#include <functional>
#include <numeric>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/pool.h"

namespace evenkeel::internal {

namespace {

constexpr int kMostSmallPoolSteps = 6000;

class SmallPool {
 public:
  SmallPool(const Pool& pool, FixedLoad known, bool distinct, CountOrder order)
      : pool_(pool),
        distinct_(distinct),
        order_(order),
        best_{.finished = false, .heaviest = known, .expert_in = {}},
        by_load_(pool.loads.size()),
        counts_(pool.loads.size(), 1),
        rank_of_(static_cast<std::size_t>(pool.num_slots)),
        rank_load_(pool.capacities.size(), 0),
        held_(pool.capacities.size()) {
    std::iota(by_load_.begin(), by_load_.end(), 0);
    std::ranges::stable_sort(by_load_, std::greater<>(),
                             [&](std::int32_t e) { return pool.loads[static_cast<std::size_t>(e)]; });
  }

  SmallPoolAnswer run() {
    choose_counts(0, pool_.num_slots);
    best_.finished = steps_left_ > 0;
    return best_;
  }

 private:
  // Equally hot experts are interchangeable, so the order may apply to them too.
  int most_copies(std::size_t position) const {
    if (position > 0 && order_ != CountOrder::none) {
      const std::size_t hotter = order_ == CountOrder::all ? position - 1 : 0;
      return counts_[static_cast<std::size_t>(by_load_[hotter])];
    }
    return distinct_ ? static_cast<int>(pool_.capacities.size()) : pool_.num_slots;
  }

  void choose_counts(std::size_t position, int slots_left) {
    if (position == by_load_.size()) {
      if (slots_left == 0) {
        items_.list_items(pool_.loads, counts_);
        place(0);
      }
      return;
    }
    const auto expert = static_cast<std::size_t>(by_load_[position]);
    const int others = static_cast<int>(by_load_.size() - position) - 1;
    const int most = std::min(slots_left - others, most_copies(position));
    for (int count = 1; count <= most && --steps_left_ > 0; ++count) {
      if (copy_load(pool_.loads[expert], count) >= best_.heaviest) continue;
      if (order_ == CountOrder::all && count * (others + 1) < slots_left) continue;
      counts_[expert] = count;
      choose_counts(position + 1, slots_left - count);
    }
  }

  bool alike_tried(std::size_t rank, std::size_t first) const {
    for (std::size_t r = first; r < rank; ++r)
      if (rank_load_[r] == rank_load_[rank] &&
          pool_.capacities[r] - static_cast<std::int32_t>(held_[r].size()) ==
              pool_.capacities[rank] - static_cast<std::int32_t>(held_[rank].size()))
        return true;
    return false;
  }

  // Copies of an expert are placed one after the other, on ascending ranks. Whether a rank holds the expert
  // matters only while those copies are placed. So ranks from `first` on are identical if their loads and
  // free slots are.
  void place(std::size_t item) {
    if (item == items_.item_loads().size()) return keep();
    const bool again = item > 0 && items_.item_experts()[item] == items_.item_experts()[item - 1];
    const std::size_t first = again ? rank_of_[item - 1] + (distinct_ ? 1 : 0) : 0;
    for (std::size_t rank = first; rank < rank_load_.size() && --steps_left_ > 0; ++rank) {
      const bool full = held_[rank].size() == static_cast<std::size_t>(pool_.capacities[rank]);
      if (full || rank_load_[rank] + items_.item_loads()[item] >= best_.heaviest) continue;
      if ((distinct_ || !again) && alike_tried(rank, first)) continue;
      rank_of_[item] = rank;
      rank_load_[rank] += items_.item_loads()[item];
      held_[rank].push_back(items_.item_experts()[item]);
      place(item + 1);
      held_[rank].pop_back();
      rank_load_[rank] -= items_.item_loads()[item];
    }
  }

  void keep() {
    best_.heaviest = std::ranges::max(rank_load_);
    best_.expert_in.clear();
    for (const auto& on_rank : held_)
      best_.expert_in.insert(best_.expert_in.end(), on_rank.begin(), on_rank.end());
  }

  const Pool& pool_;
  bool distinct_;
  CountOrder order_;
  SmallPoolAnswer best_;
  int steps_left_ = kMostSmallPoolSteps;
  std::vector<std::int32_t> by_load_;  // experts by decreasing load
  std::vector<std::int32_t> counts_;   // [E]
  CopyCounts items_;
  std::vector<std::size_t> rank_of_;             // [items]
  std::vector<FixedLoad> rank_load_;             // [P]
  std::vector<std::vector<std::int32_t>> held_;  // [P] experts, in the order of placement
};

}  // namespace

SmallPoolAnswer search_small_pool(const Pool& pool, FixedLoad known, bool distinct, CountOrder order) {
  return SmallPool(pool, known, distinct, order).run();
}

}  // namespace evenkeel::internal
