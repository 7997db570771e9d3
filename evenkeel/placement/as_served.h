// Picks, layer by layer, the most level of several placements under a server's rule for copies.
//
// Problem    a placement that is level if loads are split evenly over copies can be uneven when served under
//            Dispatch::nearest or fixed. Under fixed, a rank without a near copy draws one when the server
//            starts and keeps it. The draw depends on what all ranks hold in this layer and in the layers
//            before.
// Method     layers are handled in order, as a server draws. Each placement's layer is judged under the rule.
//            Under fixed, ranks of a node then swap all their copies at random; the swap whose draws leave
//            the worst recording most level is kept.
// Cost       one judgement per placement and layer. Under fixed also 4 to 256 swaps a layer, fewer where a
//            swap takes more draws.
// Guarantee  each layer is at least as level as that layer in any of the given placements, if the layers
//            before it are the same. The result depends on the input alone, unless the time limit is reached.
#pragma once

#include <span>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// Whether ranks may swap what they hold. They may not if every moved expert has a cost.
enum class CopySwaps { none, within_nodes };

// Needs one or more placements of the same layers, with their layer numbers where known.
Placement most_level_as_served(std::span<const Placement> placements,
                               std::span<const RoutingProfile> recordings, const Topology& topology,
                               Dispatch dispatch, CopySwaps swaps, const SolveLimits& limits);

}  // namespace evenkeel
