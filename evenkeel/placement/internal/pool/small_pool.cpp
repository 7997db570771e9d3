#include "evenkeel/placement/internal/pool/small_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace evenkeel {

bool SmallPool::search(const Pool& pool, FixedLoad known, bool distinct, Order order) {
  pool_ = pool;
  distinct_ = distinct;
  order_of_counts_ = order;
  improved_ = false;
  best_ = known;
  steps_left_ = kMostSteps;
  order_.resize(pool.loads.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, std::greater<>(),
                           [&](std::int32_t e) { return pool.loads[static_cast<std::size_t>(e)]; });
  counts_.assign(pool.loads.size(), 1);
  rank_load_.assign(pool.capacities.size(), 0);
  held_.assign(pool.capacities.size(), {});
  choose_counts(0, pool.num_slots);
  return steps_left_ > 0;
}

// Equally hot experts are alike, so that they may be held to the order too.
int SmallPool::most_copies(std::size_t position) const {
  if (position > 0 && order_of_counts_ != Order::none) {
    const std::size_t hotter = order_of_counts_ == Order::all ? position - 1 : 0;
    return counts_[static_cast<std::size_t>(order_[hotter])];
  }
  return distinct_ ? static_cast<int>(pool_.capacities.size()) : pool_.num_slots;
}

void SmallPool::choose_counts(std::size_t position, int slots_left) {
  if (position == order_.size()) {
    if (slots_left == 0) pack();
    return;
  }
  const auto expert = static_cast<std::size_t>(order_[position]);
  const int others = static_cast<int>(order_.size() - position) - 1;
  const int most = std::min(slots_left - others, most_copies(position));
  for (int count = 1; count <= most && --steps_left_ > 0; ++count) {
    if (copy_load(pool_.loads[expert], count) >= best_) continue;
    if (order_of_counts_ == Order::all && count * (others + 1) < slots_left) continue;
    counts_[expert] = count;
    choose_counts(position + 1, slots_left - count);
  }
}

void SmallPool::pack() {
  sorted_.clear();
  for (std::int32_t e : order_) {
    const auto at = static_cast<std::size_t>(e);
    sorted_.push_back(descending_key(copy_load(pool_.loads[at], counts_[at]), e));
  }
  std::ranges::sort(sorted_, std::greater<>());
  item_load_.clear();
  item_expert_.clear();
  for (std::uint64_t key : sorted_) {
    const auto e = static_cast<std::size_t>(index_of_key(key));
    for (std::int32_t c = 0; c < counts_[e]; ++c) {
      item_load_.push_back(copy_load(pool_.loads[e], counts_[e]));
      item_expert_.push_back(static_cast<std::int32_t>(e));
    }
  }
  rank_of_.resize(item_load_.size());
  place(0);
}

bool SmallPool::alike_tried(std::size_t rank, std::size_t first) const {
  for (std::size_t r = first; r < rank; ++r)
    if (rank_load_[r] == rank_load_[rank] &&
        pool_.capacities[r] - static_cast<std::int32_t>(held_[r].size()) ==
            pool_.capacities[rank] - static_cast<std::int32_t>(held_[rank].size()))
      return true;
  return false;
}

// Copies of an expert come together and go to ascending ranks. Whether a rank holds the expert matters for
// those copies alone, so ranks from `first` on that do not hold it are alike if load and capacity are.
void SmallPool::place(std::size_t item) {
  if (item == item_load_.size()) return keep();
  const bool again = item > 0 && item_expert_[item] == item_expert_[item - 1];
  const std::size_t first = again ? rank_of_[item - 1] + (distinct_ ? 1 : 0) : 0;
  for (std::size_t rank = first; rank < rank_load_.size() && --steps_left_ > 0; ++rank) {
    const bool full = held_[rank].size() == static_cast<std::size_t>(pool_.capacities[rank]);
    if (full || rank_load_[rank] + item_load_[item] >= best_) continue;
    if ((distinct_ || !again) && alike_tried(rank, first)) continue;
    rank_of_[item] = rank;
    rank_load_[rank] += item_load_[item];
    held_[rank].push_back(item_expert_[item]);
    place(item + 1);
    held_[rank].pop_back();
    rank_load_[rank] -= item_load_[item];
  }
}

void SmallPool::keep() {
  improved_ = true;
  best_ = std::ranges::max(rank_load_);
  best_expert_in_.clear();
  for (const auto& on_rank : held_)
    best_expert_in_.insert(best_expert_in_.end(), on_rank.begin(), on_rank.end());
}

}  // namespace evenkeel
