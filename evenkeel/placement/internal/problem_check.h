// Checks of a solver's input: clusters of the right shape, and counts for the traffic model asked for.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

// Throws InvalidArgument unless there is a cluster in 0..P-1 for each expert of each layer.
void require_clusters(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);
// Throws InvalidArgument if the profile has no transitions (layer_to_layer, more than a layer) or the sources
// are of another shape, negative or not finite (dispatch_combine).
void require_traffic(const PlacementProblem& problem);
// Throws InvalidArgument for sources of other layers, ranks or experts.
void require_shape(const SourceCounts& sources, const RoutingProfile& profile, const Topology& topology);

// Throws InvalidArgument for a placement of other layers or experts than these, which `what` has.
void require_fit(const char* what, int layers, int experts, const Placement& placement);

}  // namespace evenkeel::internal
