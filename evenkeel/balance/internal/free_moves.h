// Work that changes ranks without a transfer: from one copy of an expert to another.
//
// Problem     Where experts have several homes, take as much load as possible off ranks above a target, by
//             moving it between copies.
// Method      Shortest augmenting paths over ranks: a rank passes some work of an expert to another home of
//             that expert, which may in turn pass on some work of another expert.
// Cost        O(P + S) a path for S slots. Ranks from which no path was found are not searched again. No cost
//             where every expert has one home.
// Guarantee   What stays above the target cannot be moved between copies to ranks below it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/balance/internal/home_slots.h"

namespace evenkeel::internal {

class FreeMoves {
 public:
  void reserve(std::size_t ranks) {
    reached_by_.resize(ranks);
    reached_.resize(ranks);
    exhausted_.resize(ranks);
    queue_.reserve(ranks);
  }

  // Changes the slots' shares and, with them, the ranks' loads `load`.
  void level(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target) {
    reserve(load.size());
    exhausted_.assign(load.size(), false);
    for (RankId rank : indices<RankId>(load.size()))
      while (load[rank.offset()] > target && find_path(slots, load, target, rank))
        push(slots, load, target, rank);
  }

 private:
  bool find_path(const HomeSlots& slots, std::span<const std::int64_t> load, std::int64_t target,
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
    // No path from the ranks reached here ends in spare capacity. Work moves only along paths that do, so
    // these ranks stay exhausted.
    for (RankId rank : queue_) exhausted_[rank.offset()] = true;
    return false;
  }

  void push(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target, RankId from) {
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

  struct Step {
    SlotId from;
    SlotId to;
  };
  std::vector<Step> reached_by_;  // [P]
  std::vector<bool> reached_;     // [P]
  std::vector<bool> exhausted_;   // [P], no path from there ends in spare capacity, nor will one later
  std::vector<RankId> queue_;     // of the search; the rank found last has spare capacity
};

}  // namespace evenkeel::internal
