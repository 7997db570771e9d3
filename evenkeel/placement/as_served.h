// Of several placements, layer after layer the one that is most level under a server's rule for copies.
//
// Problem    under Dispatch::nearest and fixed, placements that are level on an even split need not be so
//            when served. Under fixed a rank without a near copy draws one when the server starts, and
//            keeps it; what is drawn follows from what all ranks hold in this layer and those before.
// Method     layer after layer, as a server draws: each placement's layer is judged under the rule. Under
//            fixed, ranks of a node then trade all that they hold at random, and the trade is kept whose
//            draws leave the worst recording most level.
// Cost       a judgement for each placement; under fixed besides 4 to 256 trades a layer, fewer where a
//            trade takes more draws.
// Guarantee  no layer is less level than that of any placement given, after the same layers before it.
//            The result depends on the input alone, unless the time limit is reached.
#pragma once

#include <span>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// Whether ranks may trade what they hold: not where every expert that moves has its price.
enum class Trades { none, within_nodes };

// One or more placements of the same layers, which have their numbers where they are known.
Placement most_level_as_served(std::span<const Placement> placements,
                               std::span<const RoutingProfile> recordings, const Topology& topology,
                               Dispatch dispatch, Trades trades, const SolveLimits& limits);

}  // namespace evenkeel
