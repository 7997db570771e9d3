// Chooses which expert of a rank a transfer takes: the one that keeps most rows where they are.
//
// Problem     A settled plan says how much goes from rank to rank, and takes any expert that is large enough.
//             Rows of the receiver's own tokens need not travel, so the choice matters.
// Method      Each move in turn tries the sender's other experts with enough left, and takes the one with
//             which most assignments are computed on the rank of their token.
// Cost        O(M N) for M moves and N experts a rank.
// Guarantee   Rank loads and the number of transfers stay as they are; no more rows travel than before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "evenkeel/balance/internal/excess_matcher.h"
#include "evenkeel/balance/internal/home_slots.h"
#include "evenkeel/balance/internal/link_times.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel::internal {

class LocalRows {
 public:
  // `rest` has what the moves leave on each slot; `counts` must have sources. With links, rows that stay
  // within their node are local too.
  LocalRows(const Counts& counts, const HomeSlots& slots, std::span<std::int64_t> rest, std::span<Move> moves,
            const LinkTimes* links)
      : counts_(counts), slots_(slots), rest_(rest), moves_(moves), links_(links) {}

  void improve() {
    for (Move& move : moves_) improve(move);
  }

 private:
  void improve(Move& move) {
    const RankId home = slots_[move.slot].rank;
    SlotId best = move.slot;
    std::int64_t most = 0;
    for (SlotId s = slots_.begin(home); s < slots_.end(home); ++s) {
      if (s == move.slot || rest_[s.offset()] < move.amount || move.amount < slots_[s].least) continue;
      const std::int64_t gain = moving_gains(s, move, -1) + moving_gains(move.slot, move, 1);
      if (gain > most && !is_on(s, move.to)) best = s, most = gain;
    }
    rest_[move.slot.offset()] += move.amount;
    rest_[best.offset()] -= move.amount;
    move.slot = best;
  }

  // Rows of the expert that stay on a rank which computes `count` of its assignments.
  std::int64_t kept(SlotId slot, RankId rank, std::int64_t count) const {
    const std::int64_t own = std::min(count, counts_.at(rank, slots_[slot].expert));
    if (links_ == nullptr) return own;
    const std::int64_t in_node = links_->kept_in_node(slots_[slot].expert, rank, count);
    return std::min(own, LinkTimes::most_rows) + in_node;
  }

  // The change in rows that stay on their rank, if the move's amount of a slot comes home (direction 1) or
  // leaves home (-1).
  std::int64_t moving_gains(SlotId slot, const Move& move, std::int64_t direction) const {
    const RankId home = slots_[slot].rank;
    const std::int64_t rest = rest_[slot.offset()];
    return kept(slot, home, rest + direction * move.amount) - kept(slot, home, rest) -
           direction * kept(slot, move.to, move.amount);
  }

  bool is_on(SlotId slot, RankId rank) const {
    const ExpertId expert = slots_[slot].expert;
    return std::ranges::any_of(slots_.copies(expert),
                               [&](SlotId copy) { return slots_[copy].rank == rank; }) ||
           std::ranges::any_of(
               moves_, [&](const Move& m) { return m.to == rank && slots_[m.slot].expert == expert; });
  }

  const Counts& counts_;
  const HomeSlots& slots_;
  std::span<std::int64_t> rest_;
  std::span<Move> moves_;
  const LinkTimes* links_;
};

}  // namespace evenkeel::internal
