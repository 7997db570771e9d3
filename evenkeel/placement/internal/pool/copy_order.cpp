#include "evenkeel/placement/internal/pool/copy_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/pool.h"
#include "evenkeel/placement/internal/pool/rank_packing.h"

namespace evenkeel::internal {

namespace {

class CopyOrder {
 public:
  CopyOrder(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in)
      : pool_(pool),
        most_(most +
              std::ranges::max(pool.capacities)),  // each copy's load was rounded down by less than one
        expert_in_(expert_in),
        by_load_(pool.loads.size()) {
    std::iota(by_load_.begin(), by_load_.end(), 0);
    std::ranges::stable_sort(by_load_, std::greater<>(),
                             [&](std::int32_t e) { return pool_.loads[static_cast<std::size_t>(e)]; });
    count();
  }

  void improve() {
    if (!in_order()) put_in_order();
    order_equal_experts();
  }

 private:
  void put_in_order() {
    distinct_ = !holds_twice(expert_in_);
    if (pack_sorted_counts()) return;
    if (search(CountOrder::all)) return;
    if (!hottest_has_most()) search(CountOrder::hottest);
    exchange_experts();
  }

  void count() { count_copies(expert_in_, pool_.loads.size(), counts_); }

  // Whether hotter experts have at least as many copies. Equally hot experts may have any counts.
  bool in_order() const {
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

  bool hottest_has_most() const {
    return counts_[static_cast<std::size_t>(by_load_.front())] == std::ranges::max(counts_);
  }

  bool holds_twice(std::span<const std::int32_t> expert_in) const {
    std::size_t slot = 0;
    for (std::int32_t capacity : pool_.capacities) {
      std::vector<int> copies(pool_.loads.size(), 0);
      for (std::int32_t k = 0; k < capacity; ++k)
        if (++copies[static_cast<std::size_t>(expert_in[slot++])] > 1) return true;
    }
    return false;
  }

  bool pack_sorted_counts() {
    std::vector<std::int32_t> sorted = counts_;
    std::ranges::sort(sorted, std::greater<>());
    for (std::size_t i = 0; i < by_load_.size(); ++i)
      counts_[static_cast<std::size_t>(by_load_[i])] = sorted[i];
    items_.list_items(pool_.loads, counts_);
    packing_.fill(items_.item_loads(), items_.item_experts(), pool_.capacities, distinct_);
    const FixedLoad heaviest = packing_.swap_copies(most_, nullptr);
    std::vector<std::int32_t> packed;
    packing_.list_experts(packed);
    if (heaviest > most_ || (distinct_ && holds_twice(packed))) {
      count();
      return false;
    }
    std::ranges::copy(packed, expert_in_.begin());
    return true;
  }

  bool search(CountOrder order) {
    if (!fits_small_pool(pool_, order)) return false;
    const std::vector<std::int32_t> found = search_small_pool(pool_, most_ + 1, distinct_, order).expert_in;
    if (found.empty()) return false;
    std::ranges::copy(found, expert_in_.begin());
    count();
    return true;
  }

  // Each swap leaves fewer pairs out of order, so the loop ends.
  void exchange_experts() {
    for (std::size_t i = 0; i < by_load_.size();) {
      const auto hot = static_cast<std::size_t>(by_load_[i]);
      bool exchanged = false;
      for (std::size_t j = i + 1; j < by_load_.size() && !exchanged; ++j) {
        const auto cool = static_cast<std::size_t>(by_load_[j]);
        if (pool_.loads[cool] == pool_.loads[hot] || counts_[cool] <= counts_[hot]) continue;
        exchanged = exchange(hot, cool);
      }
      i = exchanged ? 0 : i + 1;
    }
  }

  bool exchange(std::size_t hot, std::size_t cool) {
    std::swap(counts_[hot], counts_[cool]);
    const auto swapped = [&](std::size_t e) { return e == hot ? cool : e == cool ? hot : e; };
    const auto share = [&](std::size_t expert) {
      const std::size_t e = swapped(expert);
      return copy_load(pool_.loads[e], counts_[e]);
    };
    if (heaviest_rank<FixedLoad>(expert_in_, pool_.capacities, share) > most_) {
      std::swap(counts_[hot], counts_[cool]);
      return false;
    }
    for (std::int32_t& expert : expert_in_)
      expert = static_cast<std::int32_t>(swapped(static_cast<std::size_t>(expert)));
    return true;
  }

  void order_equal_experts() {
    const auto load = [&](std::int32_t e) { return pool_.loads[static_cast<std::size_t>(e)]; };
    const auto copies = [&](std::int32_t e) { return counts_[static_cast<std::size_t>(e)]; };
    std::vector<std::int32_t> renamed(by_load_.size());
    for (auto begin = by_load_.begin(); begin != by_load_.end();) {
      const auto end =
          std::find_if(begin, by_load_.end(), [&](std::int32_t e) { return load(e) != load(*begin); });
      std::vector<std::int32_t> equal(begin, end);
      std::ranges::stable_sort(equal, {}, copies);
      for (std::int32_t expert : equal) renamed[static_cast<std::size_t>(expert)] = *begin++;
    }
    for (std::int32_t& expert : expert_in_) expert = renamed[static_cast<std::size_t>(expert)];
  }

  const Pool& pool_;
  FixedLoad most_;
  std::span<std::int32_t> expert_in_;
  bool distinct_ = false;
  std::vector<std::int32_t> by_load_;  // experts by decreasing load
  std::vector<std::int32_t> counts_;   // [E]
  CopyCounts items_;
  RankPacking packing_;
};

}  // namespace

void order_copies(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in) {
  CopyOrder(pool, most, expert_in).improve();
}

}  // namespace evenkeel::internal
