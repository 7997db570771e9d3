#include "evenkeel/placement/internal/pool/copy_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace evenkeel {

void CopyOrder::improve(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in) {
  pool_ = pool;
  most_ = most + std::ranges::max(pool.capacities);  // each copy's load was rounded down by less than one
  by_load_.resize(pool.loads.size());
  std::iota(by_load_.begin(), by_load_.end(), 0);
  std::ranges::stable_sort(by_load_, std::greater<>(),
                           [&](std::int32_t e) { return pool_.loads[static_cast<std::size_t>(e)]; });
  count(expert_in);
  if (!in_order()) put_in_order(expert_in);
  order_equal_experts(expert_in);
}

void CopyOrder::put_in_order(std::span<std::int32_t> expert_in) {
  distinct_ = !holds_twice(expert_in);
  if (pack_sorted_counts(expert_in)) return;
  if (search(SmallPool::Order::all, expert_in)) return;
  if (!hottest_has_most()) search(SmallPool::Order::hottest, expert_in);
  exchange_experts(expert_in);
}

void CopyOrder::count(std::span<const std::int32_t> expert_in) {
  counts_.assign(pool_.loads.size(), 0);
  for (std::int32_t e : expert_in) ++counts_[static_cast<std::size_t>(e)];
}

// Equally hot experts may have any counts.
bool CopyOrder::in_order() const {
  std::int32_t fewest_of_hotter = std::numeric_limits<std::int32_t>::max();
  std::int32_t fewest = fewest_of_hotter;
  FixedLoad load = pool_.loads[static_cast<std::size_t>(by_load_.front())];
  for (std::int32_t expert : by_load_) {
    const auto e = static_cast<std::size_t>(expert);
    if (pool_.loads[e] < load) fewest_of_hotter = fewest;
    load = pool_.loads[e];
    if (counts_[e] > fewest_of_hotter) return false;
    fewest = std::min(fewest, counts_[e]);
  }
  return true;
}

bool CopyOrder::hottest_has_most() const {
  return counts_[static_cast<std::size_t>(by_load_.front())] == std::ranges::max(counts_);
}

bool CopyOrder::holds_twice(std::span<const std::int32_t> expert_in) {
  std::size_t slot = 0;
  for (std::int32_t capacity : pool_.capacities) {
    seen_.assign(pool_.loads.size(), 0);
    for (std::int32_t k = 0; k < capacity; ++k)
      if (seen_[static_cast<std::size_t>(expert_in[slot++])]++ != 0) return true;
  }
  return false;
}

bool CopyOrder::pack_sorted_counts(std::span<std::int32_t> expert_in) {
  sorted_ = counts_;
  std::ranges::sort(sorted_, std::greater<>());
  for (std::size_t i = 0; i < by_load_.size(); ++i)
    counts_[static_cast<std::size_t>(by_load_[i])] = sorted_[i];
  items_.list_items(pool_.loads, counts_);
  packing_.fill(items_.item_loads(), items_.item_experts(), pool_.capacities, distinct_);
  const FixedLoad heaviest = packing_.exchange(most_, nullptr);
  packed_.resize(expert_in.size());
  for (std::size_t slot = 0; slot < packed_.size(); ++slot) packed_[slot] = packing_.expert_in(slot);
  if (heaviest > most_ || (distinct_ && holds_twice(packed_))) {
    count(expert_in);
    return false;
  }
  std::ranges::copy(packed_, expert_in.begin());
  return true;
}

bool CopyOrder::search(SmallPool::Order order, std::span<std::int32_t> expert_in) {
  if (!SmallPool::fits(pool_, order)) return false;
  small_.search(pool_, most_ + 1, distinct_, order);
  if (!small_.improved()) return false;
  std::ranges::copy(small_.expert_in(), expert_in.begin());
  count(expert_in);
  return true;
}

// Each exchange leaves fewer pairs out of order, so they end.
void CopyOrder::exchange_experts(std::span<std::int32_t> expert_in) {
  for (std::size_t i = 0; i < by_load_.size();) {
    const auto hot = static_cast<std::size_t>(by_load_[i]);
    bool exchanged = false;
    for (std::size_t j = i + 1; j < by_load_.size() && !exchanged; ++j) {
      const auto cool = static_cast<std::size_t>(by_load_[j]);
      if (pool_.loads[cool] == pool_.loads[hot] || counts_[cool] <= counts_[hot]) continue;
      exchanged = exchange(hot, cool, expert_in);
    }
    i = exchanged ? 0 : i + 1;
  }
}

bool CopyOrder::exchange(std::size_t hot, std::size_t cool, std::span<std::int32_t> expert_in) {
  std::swap(counts_[hot], counts_[cool]);
  const auto swapped = [&](std::int32_t expert) {
    const auto e = static_cast<std::size_t>(expert);
    return e == hot ? cool : e == cool ? hot : e;
  };
  std::size_t slot = 0;
  for (std::int32_t capacity : pool_.capacities) {
    FixedLoad load = 0;
    for (std::int32_t k = 0; k < capacity; ++k) {
      const std::size_t e = swapped(expert_in[slot++]);
      load += copy_load(pool_.loads[e], counts_[e]);
    }
    if (load > most_) {
      std::swap(counts_[hot], counts_[cool]);
      return false;
    }
  }
  for (std::int32_t& expert : expert_in) expert = static_cast<std::int32_t>(swapped(expert));
  return true;
}

void CopyOrder::order_equal_experts(std::span<std::int32_t> expert_in) {
  const auto load = [&](std::int32_t e) { return pool_.loads[static_cast<std::size_t>(e)]; };
  const auto copies = [&](std::int32_t e) { return counts_[static_cast<std::size_t>(e)]; };
  renamed_.resize(by_load_.size());
  for (auto begin = by_load_.begin(); begin != by_load_.end();) {
    const auto end =
        std::find_if(begin, by_load_.end(), [&](std::int32_t e) { return load(e) != load(*begin); });
    equal_.assign(begin, end);
    std::ranges::stable_sort(equal_, {}, copies);
    for (std::int32_t expert : equal_) renamed_[static_cast<std::size_t>(expert)] = *begin++;
  }
  for (std::int32_t& expert : expert_in) expert = renamed_[static_cast<std::size_t>(expert)];
}

}  // namespace evenkeel
