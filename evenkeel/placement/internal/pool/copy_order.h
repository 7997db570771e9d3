// Reorders copy counts among equally good answers for a pool: hotter experts get more copies.
//
// Problem     a placement of a pool, and a load that no rank may exceed, are given. Find other copy counts
//             within that load, such that of any two experts the hotter one has at least as many copies.
// Method      first: give the present counts to the experts in order of load, and pack again. Next, for pools
//             of few slots: try every choice of ordered counts. Last: swap all copies of two experts, the
//             hottest first, where no rank exceeds the given load. Among equally hot experts the last gets
//             most copies, because vLLM's tests check that the hottest has more copies than its neighbour.
// Cost        a little counting if the order holds already, as it does for the counts of CopyCounts.
// Guarantee   no rank is above the given load. The order holds if the search of few slots finds it before it
//             is cut off. Otherwise no swap of two experts' copies improves the order.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/placement/internal/pool/pool.h"

namespace evenkeel::internal {

// `expert_in`: the expert in each slot, rank after rank; no rank is above `most`. An expert may end up twice
// on a rank only if some expert was twice on a rank before.
void order_copies(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in);

}  // namespace evenkeel::internal
