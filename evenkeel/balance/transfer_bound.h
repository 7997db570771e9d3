// How few weight transfers any plan needs that keeps every rank at or below a given load.
//
// Problem     Given homes, loads and a worst rank load W, a number that no plan with ranks at most W beats.
// Method      The largest of three counts. With `balance` a rank's home load - W:
//             Groups     Ranks joined by transfers keep their work among them, so the balances of such a
//                        group sum to at most 0. n ranks in G groups take at least n - G transfers; G is the
//                        most groups the balances allow, found over all subsets up to 12 unbalanced ranks,
//                        above that bounded by pairs that match and triples.
//             Senders    A rank's t transfers take away at most what its t largest pieces hold.
//             Receivers  A rank's t transfers bring at most the t largest experts of other ranks; all ranks
//                        together may stay P W - total short.
//             With experts of several homes, where work also changes ranks without a transfer, the count of
//             receivers alone, each of them filled up to W.
// Cost        O(3^n) up to 12 unbalanced ranks, O(P E) beyond.
// Guarantee   A lower bound for every min_segment; not always attained.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// A number of transfers that no plan with ranks at most `worst_load` beats. Loads of ranks include
// `base_load`, as a planner sees them.
std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
