// Which experts of a pool have the most copies, among equally good answers: the hotter, the more.
//
// Problem     a placement of a pool, and a load that no rank may exceed. Other counts of copies within that
//             load, so that of any two experts the hotter has at least as many copies.
// Method      the counts that are there, given to the experts in order of load and packed again; where slots
//             are a handful, every choice of ordered counts; else exchanges of all copies of two experts, the
//             hottest first, where no rank comes out above the given load. Of equally hot experts the last
//             have most: vLLM's tests ask whether the hottest has more copies than its neighbour.
// Cost        some counting where the order holds already, as it does for the counts of CopyCounts.
// Guarantee   no rank above the given load. The order holds where the search of a handful of slots finds it,
//             unless it is cut off; else no exchange of two experts' copies brings it nearer.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/placement/internal/pool/pool.h"

namespace evenkeel::internal {

// `expert_in`: the expert in each slot, rank after rank; no rank is above `most`. An expert comes to be on a
// rank twice only where some expert was before.
void order_copies(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in);

}  // namespace evenkeel::internal
