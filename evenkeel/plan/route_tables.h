// Runs that number one rank's positions in a step between processes, made from counts alone. Where the ids
// are, sorting them and applying the runs gives each position's place (python/evenkeel/torch/_routes.py).
//
// Words   A position is one assignment on the rank that computes it.
// Order   Positions sent are ordered by destination, expert, token and place in the top-k; this rank's own
//         positions come behind them, in the same order. Positions here are numbered: this rank's own first,
//         then those received, by source. They are computed in the order of slot, source, and the source's
//         order of sending. Slots 0..N-1 are the experts at home, ascending; slot N + i is the i-th expert
//         that the loan borrows.
// Cost    O(E + R log R) for R runs.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/loan.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct RouteTables {
  // `count` of this rank's assignments, ordered by expert and then as they come.
  struct SentRun {
    std::int64_t first;  // their first position
    std::int64_t count;
  };
  // `count` positions, in the order in which they are computed.
  struct ComputedRun {
    std::int64_t first;  // their first number
    std::int64_t slot;
    std::int64_t count;
  };

  std::vector<SentRun> sent;
  std::vector<ComputedRun> computed;
  std::vector<std::int64_t> sent_counts, received_counts;  // [P] positions, 0 for this rank
  std::int64_t own = 0;                                    // positions that stay on this rank
  std::int64_t native_positions = 0;                       // positions here of experts at home

  // The deal is rank `me`'s; `loan` must borrow all experts of other homes that it computes here.
  void make(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);

 private:
  void find_computed(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);
};

}  // namespace evenkeel
