// Settles excess against spare capacity, as debts are settled: with few payments, each of them one expert to
// one rank.
//
// Problem     Ranks have a balance, above 0 an excess of work, below 0 spare capacity. Move pieces of at
//             least a slot's `least` until no balance is above 0, with few moves.
// Method      Each move closes one rank's balance. Balances that match go first; ones below min_segment,
//             which no piece of their own can close, take over another rank's; then the largest excess and
//             the largest spare capacity, by the tightest slot that is large enough. What stays is repaired
//             along moves there are.
// Cost        O(P (P + N)) for N slots a rank, more where much is repaired; from kManyRanks ranks on, what is
//             looked for among ranks is found in ordered sets, so that a move takes O(N log P). The moves are
//             the same. No allocation once reserved.
// Guarantee   Sound at every step: balances, rests and moves agree. May get stuck where another order would
//             not.
// Source      Ours; docs/algorithms.md#level.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/home_slots.h"
#include "evenkeel/balance/move_pairs.h"
#include "evenkeel/balance/rank_set.h"

namespace evenkeel {

// `amount` assignments of a slot's expert to a rank that is not its home: one transfer.
struct Move {
  SlotId slot;
  RankId to;
  std::int64_t amount = 0;
};

class ExcessMatcher {
 public:
  static constexpr std::size_t kManyRanks = 512;

  // Ordered sets are used from `many_ranks` ranks on.
  explicit ExcessMatcher(std::size_t many_ranks = kManyRanks) : many_ranks_(many_ranks) {}

  // A move ends a slot, or closes or turns the balance of a rank, which few steps do to it.
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
  bool done() const;
  RankId most_excess() const;
  std::optional<RankId> most_spare() const;
  bool settle_equal_pairs();
  RankId matching_spare(RankId from, std::int64_t slack) const;
  bool absorb_small();
  bool absorb_into(RankId small);
  bool close_receiver(RankId from);
  bool close_sender(RankId to);
  bool split(RankId from, RankId to);
  RankId split_target(RankId from, RankId to, std::int64_t amount) const;
  bool overshoot(RankId from, RankId to);
  bool repair();
  bool lengthen(RankId from, RankId to);
  bool detour(RankId from, RankId to);
  std::size_t shortest_detour(RankId from, RankId to, std::int64_t amount);
  bool can_detour(const Move& m, RankId from, RankId to, std::int64_t amount) const;
  bool swap(RankId from, RankId to);

  std::int64_t excess(RankId r) const { return balance_[r]; }
  std::int64_t spare(RankId r) const { return -balance_[r]; }
  bool is_small(std::int64_t amount) const {
    return amount != 0 && amount < min_segment_ && amount > -min_segment_;
  }
  std::optional<SlotId> slot_for(RankId from, std::int64_t amount, SlotId except = SlotId(-1)) const;
  bool sends_to(RankId from, RankId to) const;
  bool try_flow(RankId from, RankId to, std::int64_t amount);
  void flow(SlotId slot, RankId to, std::int64_t amount);
  std::size_t find_move(SlotId slot, RankId to) const;

  // Of many ranks.
  void begin_sets();
  void update(RankId r);
  bool absorb_small_of_many();
  std::optional<RankId> absorbing(RankId small) const;
  RankId receiver_to_close(RankId from) const;
  RankId split_target_of_many(RankId from, RankId to, std::int64_t amount) const;
  void list_moves_of_ranks();

  const HomeSlots* slots_ = nullptr;
  std::int64_t min_segment_ = 0;
  IndexedVector<RankId, std::int64_t> balance_;  // above 0: excess; below: spare capacity
  IndexedVector<SlotId, std::int64_t> rest_;
  std::vector<RankId> open_;
  std::vector<Move> moves_;

  // Of many ranks.
  std::size_t many_ranks_;
  bool many_ = false;
  RankSet senders_;          // by excess
  RankSet closable_;         // of them, those of which one slot has all of an excess of min_segment or more
  RankSet receivers_;        // by spare capacity
  RankSet small_with_much_;  // balances below min_segment beside a slot of at least that; all the same number
  MovePairs pairs_;
  bool moves_listed_ = false;            // of_rank_ is of the moves there are
  std::vector<std::uint32_t> first_of_;  // [P + 1] into of_rank_
  std::vector<std::uint32_t> of_rank_;   // moves that begin or end at a rank, in order
};

}  // namespace evenkeel
