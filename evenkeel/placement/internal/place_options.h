// Which options of place() make sense together, and with this profile and topology.
#pragma once

#include "evenkeel/placement/place.h"

namespace evenkeel::internal {

// Copies or groups: balance is then the business of replicate().
bool has_replicas(const PlaceOptions& options);

// Free sizes, joint and exact are refused beside what balance alone decides.
void require_plain(const PlaceOptions& options, const char* beside);

// Traffic from layer to layer is what transitions count, which a profile of counts does not have.
bool traffic_is_unknown(const RoutingProfile& profile, TrafficModel traffic);

// Throws InvalidArgument naming the option, or Infeasible. `several_recordings`: that are not added up.
void validate_options(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options,
                      bool several_recordings);

}  // namespace evenkeel::internal
