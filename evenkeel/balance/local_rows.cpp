#include "evenkeel/balance/local_rows.h"

#include <algorithm>

namespace evenkeel {

namespace {

class LocalRows {
 public:
  LocalRows(const Counts& counts, const HomeSlots& slots, std::span<std::int64_t> rest, std::span<Move> moves)
      : counts_(counts), slots_(slots), rest_(rest), moves_(moves) {}

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

 private:
  // Rows of the expert that stay on a rank which computes `count` of its assignments.
  std::int64_t kept(SlotId slot, RankId rank, std::int64_t count) const {
    return std::min(count, counts_.at(rank, slots_[slot].expert));
  }

  // Change in the rows that stay on their rank, if the move's amount of a slot comes home (direction 1) or
  // leaves it (-1).
  std::int64_t moving_gains(SlotId slot, const Move& move, std::int64_t direction) const {
    const RankId home = slots_[slot].rank;
    const std::int64_t rest = rest_[slot.offset()];
    return kept(slot, home, rest + direction * move.amount) - kept(slot, home, rest) -
           direction * kept(slot, move.to, move.amount);
  }

  bool is_on(SlotId slot, RankId rank) const {
    const auto copies = slots_.copies(slots_[slot].expert);
    return std::ranges::any_of(copies, [&](SlotId copy) { return slots_[copy].rank == rank; }) ||
           std::ranges::any_of(moves_, [&](const Move& m) {
             return m.to == rank && slots_[m.slot].expert == slots_[slot].expert;
           });
  }

  const Counts& counts_;
  const HomeSlots& slots_;
  std::span<std::int64_t> rest_;
  std::span<Move> moves_;
};

}  // namespace

void keep_rows_local(const Counts& counts, const HomeSlots& slots, std::span<std::int64_t> rest,
                     std::span<Move> moves) {
  if (!counts.has_sources()) return;
  LocalRows rows(counts, slots, rest, moves);
  for (Move& move : moves) rows.improve(move);
}

}  // namespace evenkeel
