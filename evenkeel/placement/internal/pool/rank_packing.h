// Copies of experts on the ranks of one pool, so that the heaviest rank is as light as it can be made: the
// slots of each rank are given, and each is filled.
//
// Method      largest first onto the lightest rank with a free slot, never beside a copy of the same expert
//             where that can be avoided; then exchanges of one copy of the heaviest rank for one of another.
//             The copies stay listed by load, so the partners of a useful exchange stand beside the copy that
//             leaves, and are found by walking the list until the difference is too large. On request two
//             copies for two.
// Cost        S log P to fill; an exchange walks the few copies whose load is within the spread of the ranks;
//             of pairs, P (S / P)^2 log(S / P).
// Guarantee   every slot filled; with `distinct`, experts on distinct ranks, if ranks differ by a slot at
//             most (else where exchanges find a way); no exchange makes the heavier of its two ranks heavier.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel {

class RankPacking {
 public:
  // Items by descending load, copies of an expert together; `capacities` add up to their number. `distinct`:
  // an expert is on a rank at most once; it must have at most as many copies as there are ranks.
  void fill(std::span<const FixedLoad> loads, std::span<const std::int32_t> experts,
            std::span<const std::int32_t> capacities, bool distinct);
  // Exchanges until no rank is above `target`, none helps or the deadline, if there is one, passes. Returns
  // the load of the heaviest rank.
  FixedLoad exchange(FixedLoad target, const internal::Deadline* deadline);
  // Exchanges two copies of the heaviest rank for two of another, the best such; false where none helps.
  // For ranks where single exchanges have come to an end.
  bool exchange_pair(FixedLoad target);

  FixedLoad heaviest_load() const { return rank_load_[heaviest()]; }
  // The largest-first filling met a rank that held the expert already.
  bool stepped_aside() const { return stepped_aside_; }
  // The experts in the slots, rank after rank.
  std::int32_t expert_in(std::size_t slot) const { return experts_[item_in_[slot]]; }
  std::size_t num_slots() const { return item_in_.size(); }

 private:
  struct Swap {
    std::size_t mine = 0;
    std::size_t other = 0;
    FixedLoad heavier = 0;  // of the two ranks, afterwards
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

  std::size_t heaviest() const;
  std::span<const std::uint32_t> items_of(std::size_t rank) const {
    return std::span(item_in_).subspan(begin_[rank], begin_[rank + 1] - begin_[rank]);
  }
  void size_for(std::span<const std::int32_t> capacities);
  void put(std::size_t item, std::size_t rank);
  void largest_first();
  void deal_in_turn();
  void separate_copies();
  bool capacities_differ_by_one() const;
  bool separate(std::size_t item);
  bool holds(std::size_t rank, std::int32_t expert, std::size_t except_item) const;
  bool may_swap(std::size_t a, std::size_t b) const;
  void swap_items(std::size_t a, std::size_t b);
  void list_pairs(std::size_t rank, std::vector<Pair>& pairs) const;
  bool may_swap_pairs(const Pair& mine, const Pair& other) const;
  void improve_pair_swap(std::size_t rank, std::size_t other, const Pair& theirs, PairSwap& best) const;
  Swap best_swap(std::size_t rank, FixedLoad target) const;

  std::span<const FixedLoad> loads_;
  std::span<const std::int32_t> experts_;
  bool distinct_ = false;
  bool stepped_aside_ = false;
  std::vector<std::uint8_t> several_;   // [items] the expert has more than one copy
  std::vector<std::uint32_t> rank_of_;  // [items]
  std::vector<std::uint32_t> slot_of_;  // [items]
  std::vector<std::uint32_t> begin_;    // [ranks + 1] into the slots
  std::vector<std::uint32_t> filled_;   // [ranks] slots in use while filling
  std::vector<std::uint32_t> item_in_;  // [slots]
  std::vector<FixedLoad> rank_load_;    // [ranks]
  std::vector<std::uint64_t> heap_;     // ranks with a free slot, the lightest first
  std::vector<std::uint64_t> aside_;
  std::vector<Pair> my_pairs_;
  std::vector<Pair> other_pairs_;
};

}  // namespace evenkeel
