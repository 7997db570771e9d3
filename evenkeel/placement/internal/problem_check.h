// Checks of a solver's input: clusters of the right shape, and counts for the chosen traffic model.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

// Throws InvalidArgument unless there is a cluster in 0..P-1 for each expert of each layer.
void require_clusters(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);
// Throws InvalidArgument under layer_to_layer if the profile has several layers but no transitions; under
// dispatch_combine if sources have another shape, or are negative or not finite.
void require_traffic(const PlacementProblem& problem);
// Throws InvalidArgument if the sources have other layers, ranks or experts than the profile and the
// topology.
void require_shape(const SourceCounts& sources, const RoutingProfile& profile, const Topology& topology);

// Throws InvalidArgument if the placement has other layers or experts than `what`, which has `layers` and
// `experts`.
void require_fit(const char* what, int layers, int experts, const Placement& placement);

}  // namespace evenkeel::internal
