// Runs that number one rank's positions in a step between processes, made from counts alone. Where ids are, a
// sort of them and the runs give each position's place (python/evenkeel/torch/_routes.py).
//
// Words   A position is one assignment where it is computed.
// Order   Positions sent: by destination, expert, token and place in the top-k; this rank's own come behind
//         them, in the same order. Positions here are numbered: this rank's own first, then those received,
//         by source. They are computed by slot, source and the order in which the source sends them: slots
//         0..N-1 are the experts at home, ascending; N + i is what the loan borrows as its i-th.
// Cost    O(E + R log R) for R runs.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/loan.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct RouteTables {
  // `count` of this rank's assignments, in the order of their experts, those of an expert as they come.
  struct SentRun {
    std::int64_t first;  // their first position
    std::int64_t count;
  };
  // `count` positions, in the order of computing.
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

  // The deal is rank `me`'s; `loan` borrows all experts of other homes that it computes here.
  void make(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);

 private:
  void find_computed(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan);
};

}  // namespace evenkeel
