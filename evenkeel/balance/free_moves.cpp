#include "evenkeel/balance/free_moves.h"

#include <algorithm>

namespace evenkeel {

void FreeMoves::reserve(std::size_t ranks) {
  reached_by_.resize(ranks);
  reached_.resize(ranks);
  exhausted_.resize(ranks);
  queue_.reserve(ranks);
}

void FreeMoves::level(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target) {
  reserve(load.size());
  exhausted_.assign(load.size(), false);
  for (RankId rank : indices<RankId>(load.size()))
    while (load[rank.offset()] > target && find_path(slots, load, target, rank))
      push(slots, load, target, rank);
}

bool FreeMoves::find_path(const HomeSlots& slots, std::span<const std::int64_t> load, std::int64_t target,
                          RankId from) {
  if (exhausted_[from.offset()]) return false;
  reached_ = exhausted_;
  reached_[from.offset()] = true;
  queue_.assign(1, from);
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const RankId rank = queue_[i];
    for (SlotId s = slots.begin(rank); s < slots.end(rank); ++s) {
      if (slots[s].share == 0) continue;
      for (SlotId copy : slots.copies(slots[s].expert)) {
        const RankId to = slots[copy].rank;
        if (reached_[to.offset()]) continue;
        reached_[to.offset()] = true;
        reached_by_[to.offset()] = {s, copy};
        queue_.push_back(to);
        if (load[to.offset()] < target) return true;
      }
    }
  }
  // No path from the ranks reached here ends in spare capacity. Work moves only along paths that do, so these
  // ranks stay exhausted.
  for (RankId rank : queue_) exhausted_[rank.offset()] = true;
  return false;
}

void FreeMoves::push(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target, RankId from) {
  const RankId last = queue_.back();
  std::int64_t amount = std::min(load[from.offset()] - target, target - load[last.offset()]);
  for (RankId at = last; at != from; at = slots[reached_by_[at.offset()].from].rank)
    amount = std::min(amount, slots[reached_by_[at.offset()].from].share);
  for (RankId at = last; at != from; at = slots[reached_by_[at.offset()].from].rank) {
    slots[reached_by_[at.offset()].from].share -= amount;
    slots[reached_by_[at.offset()].to].share += amount;
  }
  load[from.offset()] -= amount;
  load[last.offset()] += amount;
}

}  // namespace evenkeel
