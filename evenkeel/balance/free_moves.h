// Work that changes ranks without a transfer: from one copy of an expert to another.
//
// Problem     With several homes an expert, take as much as possible off ranks above a target load, on
//             copies.
// Method      Shortest augmenting paths over ranks: a rank passes work of an expert to another of its homes,
//             which may pass on another expert's.
// Cost        O(P + S) a path for S slots, and ranks from which none was found are not looked at again;
//             nothing where every expert has one home.
// Guarantee   What stays above the target cannot be moved between copies to ranks below it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/balance/home_slots.h"

namespace evenkeel {

class FreeMoves {
 public:
  void reserve(std::size_t ranks);

  // Changes the slots' shares, and `load` by rank with them.
  void level(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target);

 private:
  bool find_path(const HomeSlots& slots, std::span<const std::int64_t> load, std::int64_t target,
                 RankId from);
  void push(HomeSlots& slots, std::span<std::int64_t> load, std::int64_t target, RankId from);

  struct Step {
    SlotId from;
    SlotId to;
  };
  std::vector<Step> reached_by_;  // [P]
  std::vector<bool> reached_;     // [P]
  std::vector<bool> exhausted_;   // [P], no path from there ends in spare capacity, nor will one later
  std::vector<RankId> queue_;     // the last one found has spare capacity
};

}  // namespace evenkeel
