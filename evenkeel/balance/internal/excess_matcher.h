// Matches the excess load of ranks with the spare capacity of others in few moves, as debts are settled with
// few payments. A move sends some of one expert's assignments to one rank.
//
// Problem     Ranks have a balance, above 0 an excess of work, below 0 spare capacity. Move pieces of at
//             least a slot's `least` until no balance is above 0, with few moves.
// Method      Each move closes a rank's balance, that is, makes it 0. Balances that match go first. A balance
//             below min_segment is too small for a piece of its own, so its rank takes over the balance of
//             another rank. Then the largest excess goes to the largest spare capacity, from the tightest
//             slot that is large enough. What remains is repaired by changing moves already made.
// Cost        O(P (P + N)) for N slots a rank, more where much is repaired; O(N log P) a move on many ranks
//             (match_state.h). No allocation once reserved.
// Guarantee   Balances, rests and moves agree after every move. May get stuck where another order of moves
//             would not.
// Source      Ours; docs/algorithms.md#level.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

#include "evenkeel/balance/internal/match_state.h"

namespace evenkeel::internal {

class ExcessMatcher : private MatchState {
 public:
  // Ordered sets are used from `many_ranks` ranks on.
  explicit ExcessMatcher(std::size_t many_ranks = kManyRanks) : MatchState(many_ranks) {}

  using MatchState::balance;
  using MatchState::most_moves;
  using MatchState::moves;
  using MatchState::open;
  using MatchState::reserve;
  using MatchState::reset;

  // Moves pieces between open ranks until none has a positive balance; false where it got stuck.
  bool settle() {
    if (settle_in_order()) return true;
    drop_settled();
    return repair();
  }
  // settle() without repairs.
  bool settle_in_order() {
    settle_equal_pairs();
    while (true) {
      if (!many_) drop_settled();
      const auto from = at_most<Kind::sender>(kMost);
      if (!from) return true;
      if (!step(*from)) return false;
    }
  }

 private:
  __extension__ using Wide = __int128;  // sums of balances over many ranks, or of a balance and a segment

  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

  // Moves each excess to the rank with the least spare capacity that takes all of it. What stays unused there
  // must fit into the slack: the capacity that all ranks together can leave unused.
  void settle_equal_pairs() {
    Wide unused = 0;
    for (RankId r : open_) unused += spare(r);
    auto slack = static_cast<std::int64_t>(std::clamp<Wide>(unused, 0, kMost));
    for (RankId from : open_) {
      if (excess(from) < min_segment_) continue;
      const auto to = at_least<Kind::receiver>(excess(from));
      const std::int64_t left = to ? spare(*to) - excess(from) : kMost;
      if (to && left <= slack && try_flow(from, *to, excess(from))) slack -= left;
    }
  }

  // `from` has the largest excess.
  bool step(RankId from) {
    if (min_segment_ > 1 && absorb_small()) return true;
    const auto to = at_most<Kind::receiver>(kMost);
    if (!to) return false;
    const std::int64_t amount = std::min(excess(from), spare(*to));
    if (amount >= min_segment_ && try_flow(from, *to, amount)) return true;
    return close_receiver(from) || close_sender(*to) || split(from, *to) || overshoot(from, *to);
  }

  // A rank with a small balance takes over the balance of another rank. For this it must have a slot from
  // which it can give a piece of min_segment or more.
  bool absorb_small() {
    for (auto small = at_least<Kind::small_with_large_slot>(0); small;
         small = after<Kind::small_with_large_slot>(*small))
      if (const auto best = absorbing(*small))
        return excess(*best) > 0 ? try_flow(*best, *small, excess(*best))
                                 : try_flow(*small, *best, spare(*best));
    return false;
  }

  // The rank with the smallest balance that the rank `small` can take over.
  std::optional<RankId> absorbing(RankId small) const {
    const Wide balance = excess(small);
    const Wide fewest = min_segment_;
    std::optional<RankId> best;
    std::int64_t best_size = 0;
    const auto consider = [&](RankId r, std::int64_t size) {
      if (best && (size > best_size || (size == best_size && *best < r))) return;
      best = r;
      best_size = size;
    };
    if (!many_) {  // checks each rank once, rather than all ranks for each slot
      for (RankId r : open_) {
        const std::int64_t size = std::abs(excess(r)), after = excess(r) + excess(small);
        if (!has_slot(excess(r) > 0 ? small : r)) continue;
        if (r == small || size < min_segment_ || is_small(after) || (best && best_size <= size)) continue;
        if (excess(r) > 0 ? slot_for(r, size) && slot_for(small, after) : slot_for(small, size).has_value())
          consider(r, size);
      }
      return best;
    }
    for (SlotId s = slots_->begin(small); s < slots_->end(small); ++s) {
      const Wide piece = least(s);
      const auto to = of_at_least<Kind::receiver>(std::max({fewest, piece, fewest + balance}));
      if (to && spare(*to) <= rest_[s]) consider(*to, spare(*to));
      const auto from = of_at_least<Kind::closable>(std::max({fewest, fewest - balance, piece - balance}));
      if (from && excess(*from) + balance <= rest_[s]) consider(*from, excess(*from));
    }
    return best;
  }
  template <Kind kind>
  std::optional<RankId> of_at_least(Wide value) const {
    return value > kMost ? std::nullopt : at_least<kind>(static_cast<std::int64_t>(value));
  }

  // Fills the largest spare capacity that a single slot of `from` can fill.
  bool close_receiver(RankId from) {
    std::optional<RankId> best;
    if (!many_)
      for (RankId r : open_)
        if (has_slot(r) && spare(r) >= min_segment_ && spare(r) <= excess(from) &&
            (!best || spare(r) > spare(*best)) && slot_for(from, spare(r)))
          best = r;
    for (SlotId s = slots_->begin(from); many_ && s < slots_->end(from); ++s) {
      const auto to = at_most<Kind::receiver>(std::min(rest_[s], excess(from)));
      if (!to || spare(*to) < std::max(min_segment_, least(s))) continue;
      if (!best || spare(*to) > spare(*best)) best = to;
    }
    return best && try_flow(from, *best, spare(*best));
  }

  bool close_sender(RankId to) {
    const auto from = at_most<Kind::closable>(spare(to));
    return from && try_flow(*from, to, excess(*from));
  }

  // For the case that no single slot closes either side. The slot that can give the most gives it, if
  // possible to a rank that gets nothing from `from` yet. What remains to be moved stays large enough for a
  // move.
  bool split(RankId from, RankId to) {
    const std::int64_t wanted = std::min(excess(from), spare(to));
    std::optional<SlotId> best;
    std::int64_t amount = 0;
    for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s) {
      std::int64_t piece = std::min(rest_[s], wanted);
      if (is_small(wanted - piece)) piece = wanted - min_segment_;
      if (piece >= least(s) && piece > amount) best = s, amount = piece;
    }
    if (best) flow(*best, split_target(from, to, amount), amount);
    return best.has_value();
  }

  // Returns `to`, which has the most spare capacity. If `from` already sends to it, prefers another rank, one
  // that is not left with a small spare capacity.
  RankId split_target(RankId from, RankId to, std::int64_t amount) const {
    if (!sends_to(from, to)) return to;
    for (std::optional<RankId> r = to; r && spare(*r) >= amount;) {
      if (is_small(spare(*r) - amount)) {
        r = at_most<Kind::receiver>(amount);
        continue;
      }
      if (!sends_to(from, *r)) return *r;
      const auto next = after<Kind::receiver>(*r);
      r = next && spare(*next) == spare(*r) ? next : at_most<Kind::receiver>(spare(*r) - 1);
    }
    return to;
  }

  // Where the excess is too small for a move, moves a larger piece to the rank with the most spare capacity.
  bool overshoot(RankId from, RankId to) {
    std::optional<SlotId> best;
    std::int64_t amount = spare(to) + 1;
    for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s) {
      const std::int64_t piece = std::max(excess(from), least(s));
      if (piece <= rest_[s] && piece < amount) best = s, amount = piece;
    }
    if (best) flow(*best, to, amount);
    return best.has_value();
  }

  bool repair() {
    for (RankId from : open_) {
      while (excess(from) > 0) {
        const bool repaired = std::ranges::any_of(
            open_, [&](RankId to) { return spare(to) > 0 && (lengthen(from, to) || detour(from, to)); });
        if (!repaired &&
            std::ranges::none_of(open_, [&](RankId to) { return spare(to) > 0 && swap(from, to); }))
          return false;
      }
    }
    return true;
  }

  // Repairs by moving more or less along an existing transfer, or by one more transfer beside it.
  bool lengthen(RankId from, RankId to) {
    if (!sends_to(from, to) && !sends_to(to, from)) return false;
    const std::int64_t amount = std::min(excess(from), spare(to));
    for (std::uint32_t i : moves_at(from)) {
      const Move m = moves_[i];
      const bool more = m.to == to && rest_[m.slot] >= amount;
      if (!more && (sender(m) != to || m.amount - amount < least(m.slot))) continue;
      flow(m.slot, more ? to : from, more ? amount : -amount);
      return true;
    }
    const std::int64_t back = min_segment_ - amount;
    if (!has_slot(to)) return false;
    for (std::uint32_t i : moves_at(from)) {
      const Move m = moves_[i];
      if (m.to != to || back <= 0 || m.amount - back < least(m.slot)) continue;
      const auto other = slot_for(from, min_segment_, m.slot);
      if (!other) continue;
      flow(m.slot, to, -back);
      flow(*other, to, min_segment_);
      return true;
    }
    return false;
  }

  // Repairs by routing a transfer that begins or ends at one of the two ranks through the other rank. Both of
  // its pieces are then large, and they differ by the amount. Takes the smallest such transfer.
  struct Detour {
    Move move;
    RankId through;
    std::int64_t in, out;
  };
  bool detour(RankId from, RankId to) {
    std::optional<Detour> best;
    std::uint32_t best_move = 0;
    for (RankId end : {from, to})
      for (std::uint32_t i : moves_at(end)) {
        const Detour each = detour_of(moves_[i], from, to);
        const bool is_less =
            !best || std::pair(each.move.amount, i) < std::pair(best->move.amount, best_move);
        if (is_less && is_possible(each, from, to)) best = each, best_move = i;
      }
    if (!best) return false;
    flow(best->move.slot, best->move.to, -best->move.amount);
    flow(best->move.slot, best->through, best->in);
    flow(*slot_for(best->through, best->out), best->move.to, best->out);
    return true;
  }
  Detour detour_of(const Move& m, RankId from, RankId to) const {
    const std::int64_t amount = std::min(excess(from), spare(to));
    return {m, sender(m) == to || m.to == to ? from : to,
            m.amount + (sender(m) == to     ? -amount
                        : sender(m) == from ? amount
                                            : 0),
            m.amount + (m.to == to     ? amount
                        : m.to == from ? -amount
                                       : 0)};
  }
  bool is_possible(const Detour& d, RankId from, RankId to) const {
    const bool at_to = sender(d.move) == to || d.move.to == to;
    const bool at_from = sender(d.move) == from || d.move.to == from;
    return at_to != at_from && has_slot(d.through) && d.in >= least(d.move.slot) &&
           d.in - d.move.amount <= rest_[d.move.slot] && slot_for(d.through, d.out);
  }

  // Repairs by sending a piece each way; the pieces differ by the amount.
  bool swap(RankId from, RankId to) {
    if (!has_slot(from) || !has_slot(to)) return false;
    const std::int64_t amount = std::min(excess(from), spare(to));
    for (SlotId s = slots_->begin(to); s < slots_->end(to); ++s) {
      const std::int64_t back = least(s);
      if (back <= 0 || rest_[s] < back) continue;
      const auto forth = slot_for(from, back + amount);
      if (!forth) continue;
      flow(*forth, to, back + amount);
      flow(s, from, back);
      return true;
    }
    return false;
  }
};

}  // namespace evenkeel::internal
