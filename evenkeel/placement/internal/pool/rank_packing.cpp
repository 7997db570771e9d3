#include "evenkeel/placement/internal/pool/rank_packing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kKeyIndexBits) - 1;

std::uint64_t ascending_key(FixedLoad load, std::size_t rank) {
  return (static_cast<std::uint64_t>(load) << kKeyIndexBits) | rank;
}

}  // namespace

void RankPacking::fill(std::span<const FixedLoad> loads, std::span<const std::int32_t> experts,
                       std::span<const std::int32_t> capacities, bool distinct) {
  loads_ = loads;
  experts_ = experts;
  distinct_ = distinct;
  several_.assign(loads.size(), 0);
  for (std::size_t i = 1; i < loads.size(); ++i)
    if (experts[i] == experts[i - 1]) several_[i] = several_[i - 1] = 1;
  size_for(capacities);
  largest_first();
  if (distinct_ && stepped_aside_) separate_copies();
}

void RankPacking::size_for(std::span<const std::int32_t> capacities) {
  begin_.assign(1, 0);
  for (std::int32_t capacity : capacities)
    begin_.push_back(begin_.back() + static_cast<std::uint32_t>(capacity));
  EVENKEEL_CHECK(begin_.back() == loads_.size());
  filled_.assign(capacities.size(), 0);
  rank_load_.assign(capacities.size(), 0);
  rank_of_.resize(loads_.size());
  slot_of_.resize(loads_.size());
  item_in_.resize(loads_.size());
}

void RankPacking::put(std::size_t item, std::size_t rank) {
  const std::uint32_t slot = begin_[rank] + filled_[rank]++;
  item_in_[slot] = static_cast<std::uint32_t>(item);
  slot_of_[item] = slot;
  rank_of_[item] = static_cast<std::uint32_t>(rank);
  rank_load_[rank] += loads_[item];
}

void RankPacking::largest_first() {
  stepped_aside_ = false;
  heap_.clear();
  for (std::size_t rank = 0; rank + 1 < begin_.size(); ++rank)
    if (begin_[rank + 1] > begin_[rank]) heap_.push_back(ascending_key(0, rank));
  for (std::size_t item = 0; item < loads_.size(); ++item) {
    // Copies come together, so a rank that holds one already has it in its last slot.
    const auto has_copy = [&](std::size_t rank) {
      return several_[item] != 0 && filled_[rank] > 0 &&
             experts_[item_in_[begin_[rank] + filled_[rank] - 1]] == experts_[item];
    };
    aside_.clear();
    stepped_aside_ |= distinct_ && has_copy(heap_.front() & kRankMask);
    while (distinct_ && heap_.size() > 1 && has_copy(heap_.front() & kRankMask)) {
      aside_.push_back(heap_.front());
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    const std::size_t rank = heap_.front() & kRankMask;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    put(item, rank);
    if (begin_[rank] + filled_[rank] < begin_[rank + 1])
      aside_.push_back(ascending_key(rank_load_[rank], rank));
    for (std::uint64_t key : aside_) {
      heap_.push_back(key);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
}

bool RankPacking::holds(std::size_t rank, std::int32_t expert, std::size_t except_item) const {
  for (std::uint32_t item : items_of(rank))
    if (item != except_item && experts_[item] == expert) return true;
  return false;
}

// Largest first can run out of ranks that do not hold the expert: exchange what is then held twice.
void RankPacking::separate_copies() {
  for (std::size_t item = 0; item < loads_.size(); ++item)
    if (several_[item] != 0 && holds(rank_of_[item], experts_[item], item) && !separate(item)) {
      if (capacities_differ_by_one()) deal_in_turn();
      return;
    }
}

bool RankPacking::capacities_differ_by_one() const {
  std::size_t least = items_of(0).size();
  std::size_t most = least;
  for (std::size_t rank = 1; rank < rank_load_.size(); ++rank) {
    least = std::min(least, items_of(rank).size());
    most = std::max(most, items_of(rank).size());
  }
  return most - least <= 1;
}

bool RankPacking::separate(std::size_t item) {
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

// Copies of an expert stand together and are at most as many as ranks, so dealing in turn separates them; the
// ranks with a slot more come first.
void RankPacking::deal_in_turn() {
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

std::size_t RankPacking::heaviest() const {
  std::size_t best = 0;
  for (std::size_t rank = 1; rank < rank_load_.size(); ++rank)
    if (rank_load_[rank] > rank_load_[best]) best = rank;
  return best;
}

bool RankPacking::may_swap(std::size_t a, std::size_t b) const {
  if (!distinct_) return true;
  return (several_[a] == 0 || !holds(rank_of_[b], experts_[a], b)) &&
         (several_[b] == 0 || !holds(rank_of_[a], experts_[b], a));
}

void RankPacking::swap_items(std::size_t a, std::size_t b) {
  const FixedLoad moved = loads_[a] - loads_[b];
  rank_load_[rank_of_[a]] -= moved;
  rank_load_[rank_of_[b]] += moved;
  std::swap(item_in_[slot_of_[a]], item_in_[slot_of_[b]]);
  std::swap(slot_of_[a], slot_of_[b]);
  std::swap(rank_of_[a], rank_of_[b]);
}

RankPacking::Swap RankPacking::best_swap(std::size_t rank, FixedLoad target) const {
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

FixedLoad RankPacking::exchange(FixedLoad target, const internal::Deadline* deadline) {
  for (;;) {
    const std::size_t rank = heaviest();
    if (rank_load_[rank] <= target || (deadline != nullptr && deadline->passed())) return rank_load_[rank];
    const Swap swap = best_swap(rank, target);
    if (swap.heavier >= rank_load_[rank]) return rank_load_[rank];
    swap_items(swap.mine, swap.other);
  }
}

bool RankPacking::may_swap_pairs(const Pair& mine, const Pair& other) const {
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

void RankPacking::list_pairs(std::size_t rank, std::vector<Pair>& pairs) const {
  pairs.clear();
  const auto items = items_of(rank);
  for (std::size_t a = 0; a < items.size(); ++a)
    for (std::size_t b = a + 1; b < items.size(); ++b)
      pairs.push_back({loads_[items[a]] + loads_[items[b]], items[a], items[b]});
}

bool RankPacking::exchange_pair(FixedLoad target) {
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

// The best partner moves half of what the ranks differ by: it is looked for from there, up and down.
void RankPacking::improve_pair_swap(std::size_t rank, std::size_t other, const Pair& theirs,
                                    PairSwap& best) const {
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

}  // namespace evenkeel
