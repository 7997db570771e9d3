// A lower bound on the weight transfers of any plan that keeps every rank at or below a given load.
//
// Problem     Given homes, loads and a worst rank load W, find a number of transfers that every plan with
//             rank loads of at most W needs.
// Method      The largest of three counts. A rank's balance is its home load - W.
//             Groups     Ranks joined by transfers keep their work among them, so the balances of such a
//                        group sum to at most 0. n ranks in G groups take at least n - G transfers. G is the
//                        most groups that the balances allow. Up to 12 unbalanced ranks it is found over all
//                        subsets; above that it is bounded, by the ranks that can stay short on their own,
//                        the pairs that match, and triples of the others.
//             Senders    A rank's t transfers take away at most what its t largest pieces hold.
//             Receivers  A rank's t transfers bring at most the t largest experts of other ranks; all ranks
//                        together may stay below W by P W - total.
//             Where experts have several homes, work also changes ranks without a transfer. Then only the
//             receivers are counted, each filled up to W.
// Cost        O(3^n) up to 12 unbalanced ranks, O(P E) beyond.
// Guarantee   A lower bound for every min_segment; not always attained.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// A lower bound on the transfers of any plan with rank loads of at most `worst_load`. Loads of ranks include
// `base_load`, as a planner sees them.
std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
