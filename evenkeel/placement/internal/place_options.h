// Checks that the options of place() make sense together, and with the profile and the topology.
#pragma once

#include "evenkeel/placement/place.h"

namespace evenkeel::internal {

// True with copies or groups; replicate() then does the balancing.
bool has_replicas(const PlaceOptions& options);

// Refuses free sizes, objective joint and solver exact, which do not work with `beside`.
void require_plain(const PlaceOptions& options, const char* beside);

// True if traffic from layer to layer is needed but the profile has no transitions, such as one made from
// counts.
bool traffic_is_unknown(const RoutingProfile& profile, TrafficModel traffic);

// Throws InvalidArgument naming the option, or Infeasible. `several_recordings`: true if there are several
// recordings that are not added up.
void validate_options(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options,
                      bool several_recordings);

}  // namespace evenkeel::internal
