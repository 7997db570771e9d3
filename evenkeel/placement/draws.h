// Names of ranks under which the draws of Dispatch::fixed fall evenly.
//
// Problem    a rank without a near copy of an expert draws one when the server starts, and keeps it. Which
// ones
//            are drawn follows from what all ranks hold in this layer and those before; ranks that an even
//            split would leave level are then several percent uneven.
// Method     layer after layer, as the server draws: ranks of a node trade all that they hold at random, and
// the
//            trade is kept that leaves the worst recording most level under the draws it leads to.
// Cost       at most kMostDraws draws a layer, about 10 ms.
// Guarantee  no layer is less level than it was given, under the draws that come after the layers before it.
// The
//            result depends on the input alone, unless the time limit is reached.
#pragma once

#include <span>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// The placement has its layer numbers, where they are known.
Placement renamed_for_draws(const Placement& placement, std::span<const RoutingProfile> recordings,
                            const Topology& topology, const SolveLimits& limits);

}  // namespace evenkeel
