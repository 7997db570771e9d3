// Settles excess against room, as debts are settled: with few payments, each of them one expert to one rank.
//
// Problem     Ranks have a balance, above 0 an excess of work, below 0 room. Move pieces of at least a slot's
//             `least` until no balance is above 0, with few moves.
// Method      Each move closes one rank's balance. Balances that match go first; ones below min_segment,
//             which no piece of their own can close, take over another rank's; then the largest excess and
//             the largest room, by the tightest slot that is large enough. What stays is mended along moves
//             there are.
// Cost        O(P (P + N)) for N slots a rank, more where much is mended; no allocation once reserved.
// Guarantee   Sound at every step: balances, rests and moves agree. May get stuck where another order would
//             not.
// Source      Ours; docs/algorithms.md#level.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/home_slots.h"

namespace evenkeel {

// `amount` assignments of a slot's expert to a rank that is not its home: one transfer.
struct Move {
  SlotId slot;
  RankId to;
  std::int64_t amount = 0;
};

class Settlement {
 public:
  // A move ends a slot, or closes or turns the account of a rank, which few steps do to it.
  static constexpr std::size_t most_moves(std::size_t slots, std::size_t ranks) { return slots + 8 * ranks; }
  void reserve(std::size_t slots, std::size_t ranks);
  void reset(const HomeSlots& slots, std::span<const std::int64_t> balance, std::int64_t min_segment);

  // Moves pieces until no rank of `ranks` has a positive balance; false where it got stuck.
  bool settle(std::span<const RankId> ranks);

  std::span<const Move> moves() const { return moves_; }
  std::span<const std::int64_t> balance() const { return balance_.span(); }

 private:
  void drop_settled();
  bool step();
  bool settle_equal_pairs();
  bool absorb_small();
  bool absorb_into(RankId small);
  bool close_receiver(RankId from);
  bool close_sender(RankId to);
  bool split(RankId from, RankId to);
  bool overshoot(RankId from, RankId to);
  bool mend();
  bool lengthen(RankId from, RankId to);
  bool detour(RankId from, RankId to);
  bool can_detour(const Move& m, RankId from, RankId to, std::int64_t amount) const;
  bool swap(RankId from, RankId to);

  std::int64_t excess(RankId r) const { return balance_[r]; }
  std::int64_t room(RankId r) const { return -balance_[r]; }
  bool is_small(std::int64_t amount) const {
    return amount != 0 && amount < min_segment_ && amount > -min_segment_;
  }
  std::optional<SlotId> slot_for(RankId from, std::int64_t amount, SlotId except = SlotId(-1)) const;
  bool sends_to(RankId from, RankId to) const;
  bool try_flow(RankId from, RankId to, std::int64_t amount);
  void flow(SlotId slot, RankId to, std::int64_t amount);

  const HomeSlots* slots_ = nullptr;
  std::int64_t min_segment_ = 0;
  IndexedVector<RankId, std::int64_t> balance_;  // above 0: excess; below: room
  IndexedVector<SlotId, std::int64_t> rest_;
  std::vector<RankId> open_;
  std::vector<Move> moves_;
};

}  // namespace evenkeel
