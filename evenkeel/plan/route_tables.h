// Runs that number one rank's positions in a step between processes. They are made from counts alone. The
// process that has the expert ids sorts them and applies the runs to find each position's number
// (python/evenkeel/torch/_routes.py).
//
// Words   A position is one assignment on the rank that computes it.
// Order   Positions sent are ordered by destination, expert, token and index in the top-k. This rank's own
//         positions follow, in the same order. Positions here are numbered with this rank's own first, then
//         those received, by source. They are computed in the order of slot, then source, then the order in
//         which the source sent them. Slots 0..N-1 are the experts at home, ascending; slot N + i is the i-th
//         expert that the loan borrows.
// Cost    O(E + R log R) for R runs.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/loan.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct RouteTables {
  // `count` of this rank's assignments, ordered by expert and then by their index.
  struct SentRun {
    std::int64_t first;  // the first assignment's position
    std::int64_t count;
  };
  // `count` positions, in the order in which they are computed.
  struct ComputedRun {
    std::int64_t first;  // the first position's number
    std::int64_t slot;
    std::int64_t count;
  };

  std::vector<SentRun> sent;
  std::vector<ComputedRun> computed;
  std::vector<std::int64_t> sent_counts, received_counts;  // [P] positions, 0 for this rank
  std::int64_t own = 0;                                    // number of positions that stay on this rank
  std::int64_t native_positions = 0;                       // number of positions here of experts at home

  // `deal` is that of rank `me`. `loan` must borrow every expert that the deal computes here without a home
  // here.
  void make(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);

 private:
  void find_computed(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);
};

}  // namespace evenkeel
