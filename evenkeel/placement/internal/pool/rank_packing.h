// Packs copies of experts on the ranks of one pool so that the heaviest rank is as light as possible. Each
// rank's slots are given, and all are filled.
//
// Method      largest first onto the lightest rank with a free slot, avoiding ranks that hold the same expert
//             where possible. Then swaps of one copy of the heaviest rank for one of another. All copies are
//             listed by load, so useful partners are next to the copy that leaves; the search walks the list
//             until the difference is too large. On request, swaps of two copies for two.
// Cost        S log P to fill. A swap walks the few copies whose loads differ by less than the ranks' spread;
//             a swap of pairs takes P (S / P)^2 log(S / P).
// Guarantee   every slot is filled. With `distinct`, copies of an expert are on distinct ranks if ranks
//             differ by at most one slot (otherwise only if swaps can separate them). No swap makes the
//             heavier of its two ranks heavier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/base/check.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel::internal {

class RankPacking {
 public:
  // The items are copies by descending load, copies of one expert adjacent, as many as the sum of
  // `capacities`. With `distinct`, a rank holds an expert at most once; an expert must then have at most as
  // many copies as there are ranks.
  void fill(std::span<const FixedLoad> loads, std::span<const std::int32_t> experts,
            std::span<const std::int32_t> capacities, bool distinct) {
    loads_ = loads;
    experts_ = experts;
    distinct_ = distinct;
    several_.assign(loads.size(), 0);
    for (std::size_t i = 1; i < loads.size(); ++i)
      if (experts[i] == experts[i - 1]) several_[i] = several_[i - 1] = 1;
    begin_.assign(1, 0);
    for (std::int32_t capacity : capacities)
      begin_.push_back(begin_.back() + static_cast<std::uint32_t>(capacity));
    EVENKEEL_CHECK(begin_.back() == loads_.size());
    filled_.assign(capacities.size(), 0);
    rank_load_.assign(capacities.size(), 0);
    rank_of_.resize(loads_.size());
    slot_of_.resize(loads_.size());
    item_in_.resize(loads_.size());
    largest_first();
    const auto [least, most] = std::ranges::minmax(capacities);
    if (distinct_ && skipped_rank_ && !separate_copies() && most - least <= 1) deal_in_turn();
  }

  // Swaps until no rank is above `target`, no swap helps, or the deadline (if any) passes. Returns the load
  // of the heaviest rank.
  FixedLoad swap_copies(FixedLoad target, const Deadline* deadline) {
    for (;;) {
      const std::size_t rank = heaviest();
      if (rank_load_[rank] <= target || (deadline != nullptr && deadline->passed())) return rank_load_[rank];
      const Swap swap = best_swap(rank, target);
      if (swap.heavier >= rank_load_[rank]) return rank_load_[rank];
      swap_items(swap.mine, swap.other);
    }
  }

  // Makes the best swap of two copies of the heaviest rank for two of another; false if none helps. For ranks
  // that no single swap improves.
  bool swap_pairs(FixedLoad target) {
    const std::size_t rank = heaviest();
    const FixedLoad load = rank_load_[rank];
    list_pairs(rank, my_pairs_);
    std::ranges::sort(my_pairs_, {}, &Pair::load);
    PairSwap best{{}, {}, load};
    for (std::size_t other = 0; other < rank_load_.size() && best.heavier > target; ++other) {
      if (rank_load_[other] >= load) continue;
      list_pairs(other, other_pairs_);
      for (const Pair& theirs : other_pairs_) improve_pair_swap(rank, other, theirs, best);
    }
    if (best.heavier >= load) return false;
    swap_items(best.mine.first, best.theirs.first);
    swap_items(best.mine.second, best.theirs.second);
    return true;
  }

  FixedLoad heaviest_load() const { return rank_load_[heaviest()]; }
  // True if, at some point of the largest-first filling, the lightest rank already held the expert.
  bool skipped_rank() const { return skipped_rank_; }
  // The expert in each slot, rank after rank.
  void list_experts(std::vector<std::int32_t>& expert_in) const {
    expert_in.clear();
    for (std::uint32_t item : item_in_) expert_in.push_back(experts_[item]);
  }

 private:
  struct Swap {
    std::size_t mine = 0;
    std::size_t other = 0;
    FixedLoad heavier = 0;  // load of the heavier of the two ranks after the swap
  };
  struct Pair {
    FixedLoad load = 0;
    std::uint32_t first = 0;
    std::uint32_t second = 0;
  };
  struct PairSwap {
    Pair mine;
    Pair theirs;
    FixedLoad heavier = 0;
  };

  static std::uint64_t ascending_key(FixedLoad load, std::size_t rank) {
    return (static_cast<std::uint64_t>(load) << kKeyIndexBits) | rank;
  }
  static std::size_t rank_of_key(std::uint64_t key) {
    return key & ((std::uint64_t{1} << kKeyIndexBits) - 1);
  }
  std::span<const std::uint32_t> items_of(std::size_t rank) const {
    return std::span(item_in_).subspan(begin_[rank], begin_[rank + 1] - begin_[rank]);
  }

  void put(std::size_t item, std::size_t rank) {
    const std::uint32_t slot = begin_[rank] + filled_[rank]++;
    item_in_[slot] = static_cast<std::uint32_t>(item);
    slot_of_[item] = slot;
    rank_of_[item] = static_cast<std::uint32_t>(rank);
    rank_load_[rank] += loads_[item];
  }

  void largest_first() {
    skipped_rank_ = false;
    heap_.clear();
    for (std::size_t rank = 0; rank + 1 < begin_.size(); ++rank)
      if (begin_[rank + 1] > begin_[rank]) heap_.push_back(ascending_key(0, rank));
    for (std::size_t item = 0; item < loads_.size(); ++item) {
      // Copies of an expert come one after the other, so a rank that holds one has it in its last slot.
      const auto has_copy = [&](std::size_t rank) {
        return several_[item] != 0 && filled_[rank] > 0 &&
               experts_[item_in_[begin_[rank] + filled_[rank] - 1]] == experts_[item];
      };
      put_back_.clear();
      skipped_rank_ |= distinct_ && has_copy(rank_of_key(heap_.front()));
      while (distinct_ && heap_.size() > 1 && has_copy(rank_of_key(heap_.front()))) {
        put_back_.push_back(heap_.front());
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        heap_.pop_back();
      }
      const std::size_t rank = rank_of_key(heap_.front());
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      put(item, rank);
      if (begin_[rank] + filled_[rank] < begin_[rank + 1])
        put_back_.push_back(ascending_key(rank_load_[rank], rank));
      for (std::uint64_t key : put_back_) {
        heap_.push_back(key);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
    }
  }

  bool holds(std::size_t rank, std::int32_t expert, std::size_t except_item) const {
    return std::ranges::any_of(
        items_of(rank), [&](std::uint32_t item) { return item != except_item && experts_[item] == expert; });
  }

  // Largest first can run out of ranks without the expert. This swaps away copies that are twice on a rank;
  // false if it cannot separate them all.
  bool separate_copies() {
    for (std::size_t item = 0; item < loads_.size(); ++item)
      if (several_[item] != 0 && holds(rank_of_[item], experts_[item], item) && !separate(item)) return false;
    return true;
  }

  bool separate(std::size_t item) {
    const std::size_t from = rank_of_[item];
    Swap best{item, item, std::numeric_limits<FixedLoad>::max()};
    for (std::size_t other = 0; other < loads_.size(); ++other) {
      const std::size_t to = rank_of_[other];
      if (to == from || !may_swap(item, other)) continue;
      const FixedLoad moved = loads_[item] - loads_[other];
      const FixedLoad heavier = std::max(rank_load_[from] - moved, rank_load_[to] + moved);
      if (heavier < best.heavier) best = {item, other, heavier};
    }
    if (best.other == item) return false;
    swap_items(item, best.other);
    return true;
  }

  // Deals items to ranks in turn, ranks with an extra slot first. Copies of an expert are adjacent and at
  // most as many as ranks, so this separates them.
  void deal_in_turn() {
    heap_.clear();
    const std::size_t num_ranks = rank_load_.size();
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
      heap_.push_back(descending_key(begin_[rank + 1] - begin_[rank], static_cast<std::int32_t>(rank)));
    std::ranges::sort(heap_, std::greater<>());
    std::ranges::fill(filled_, 0);
    std::ranges::fill(rank_load_, 0);
    for (std::size_t item = 0; item < loads_.size(); ++item)
      put(item, static_cast<std::size_t>(index_of_key(heap_[item % num_ranks])));
  }

  std::size_t heaviest() const {
    return static_cast<std::size_t>(std::ranges::max_element(rank_load_) - rank_load_.begin());
  }

  bool may_swap(std::size_t a, std::size_t b) const {
    if (!distinct_) return true;
    return (several_[a] == 0 || !holds(rank_of_[b], experts_[a], b)) &&
           (several_[b] == 0 || !holds(rank_of_[a], experts_[b], a));
  }

  void swap_items(std::size_t a, std::size_t b) {
    const FixedLoad moved = loads_[a] - loads_[b];
    rank_load_[rank_of_[a]] -= moved;
    rank_load_[rank_of_[b]] += moved;
    std::swap(item_in_[slot_of_[a]], item_in_[slot_of_[b]]);
    std::swap(slot_of_[a], slot_of_[b]);
    std::swap(rank_of_[a], rank_of_[b]);
  }

  Swap best_swap(std::size_t rank, FixedLoad target) const {
    const FixedLoad load = rank_load_[rank];
    const FixedLoad spread = load - *std::ranges::min_element(rank_load_);
    Swap best{0, 0, load};
    for (std::uint32_t mine : items_of(rank)) {
      for (std::size_t other = mine + 1; other < loads_.size(); ++other) {
        const FixedLoad moved = loads_[mine] - loads_[other];
        if (moved >= spread) break;
        if (load - moved >= best.heavier) continue;
        const FixedLoad heavier = std::max(load - moved, rank_load_[rank_of_[other]] + moved);
        if (heavier >= best.heavier || rank_of_[other] == rank || !may_swap(mine, other)) continue;
        best = {mine, other, heavier};
        if (heavier <= target) return best;
      }
    }
    return best;
  }

  bool may_swap_pairs(const Pair& mine, const Pair& other) const {
    if (!distinct_) return true;
    const auto stays_away = [&](const Pair& moved, const Pair& leaving, std::uint32_t item) {
      if (several_[item] == 0) return true;
      for (std::uint32_t held : items_of(rank_of_[leaving.first]))
        if (held != leaving.first && held != leaving.second && experts_[held] == experts_[item]) return false;
      return experts_[moved.first] != experts_[moved.second];
    };
    return stays_away(mine, other, mine.first) && stays_away(mine, other, mine.second) &&
           stays_away(other, mine, other.first) && stays_away(other, mine, other.second);
  }

  void list_pairs(std::size_t rank, std::vector<Pair>& pairs) const {
    pairs.clear();
    const auto items = items_of(rank);
    for (std::size_t a = 0; a < items.size(); ++a)
      for (std::size_t b = a + 1; b < items.size(); ++b)
        pairs.push_back({loads_[items[a]] + loads_[items[b]], items[a], items[b]});
  }

  // The best partner moves half the difference of the ranks, so the search starts there and goes up and down.
  void improve_pair_swap(std::size_t rank, std::size_t other, const Pair& theirs, PairSwap& best) const {
    const FixedLoad load = rank_load_[rank];
    const auto heavier_with = [&](const Pair& mine) {
      const FixedLoad moved = mine.load - theirs.load;
      return std::max(load - moved, rank_load_[other] + moved);
    };
    const auto take_if_allowed = [&](const Pair& mine) {
      if (!may_swap_pairs(mine, theirs)) return false;
      best = {mine, theirs, heavier_with(mine)};
      return true;
    };
    const auto middle =
        std::ranges::lower_bound(my_pairs_, theirs.load + (load - rank_load_[other]) / 2, {}, &Pair::load);
    for (auto up = middle; up != my_pairs_.end() && heavier_with(*up) < best.heavier; ++up)
      if (take_if_allowed(*up)) break;
    for (auto down = middle; down != my_pairs_.begin() && heavier_with(*(down - 1)) < best.heavier; --down)
      if (take_if_allowed(*(down - 1))) break;
  }

  std::span<const FixedLoad> loads_;
  std::span<const std::int32_t> experts_;
  bool distinct_ = false;
  bool skipped_rank_ = false;
  std::vector<std::uint8_t> several_;   // [items] 1 if the expert has more than one copy
  std::vector<std::uint32_t> rank_of_;  // [items]
  std::vector<std::uint32_t> slot_of_;  // [items]
  std::vector<std::uint32_t> begin_;    // [ranks + 1] into the slots
  std::vector<std::uint32_t> filled_;   // [ranks] slots in use while filling
  std::vector<std::uint32_t> item_in_;  // [slots]
  std::vector<FixedLoad> rank_load_;    // [ranks]
  std::vector<std::uint64_t> heap_;     // ranks with a free slot, the lightest first
  std::vector<std::uint64_t> put_back_;
  std::vector<Pair> my_pairs_;
  std::vector<Pair> other_pairs_;
};

}  // namespace evenkeel::internal
