// Which expert of a rank a transfer takes: the one that keeps most rows where they are.
//
// Problem     A settled plan says how much goes from rank to rank, and takes any expert that is large enough.
//             Rows of the receiver's own tokens need not travel, so the choice matters.
// Method      Each move in turn tries the sender's other experts with enough left, and takes the one with
//             which most assignments are computed on the rank of their token.
// Cost        O(M N) for M moves and N experts a rank.
// Guarantee   Rank loads and the number of transfers stay as they are; no more rows travel than before.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/balance/excess_matcher.h"
#include "evenkeel/balance/home_slots.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel {

// `rest` by slot is what stays at home beside the moves. Nothing is done where the sources are not known.
void keep_rows_local(const Counts& counts, const HomeSlots& slots, std::span<std::int64_t> rest,
                     std::span<Move> moves);

}  // namespace evenkeel
