// Placements that a checkpoint can be permuted to whose router chooses groups of experts first.
//
// Problem   the groups of such a router are consecutive experts. Experts in another order compute the
//           same only if whole groups become whole groups (docs/checkpoints.md#groups).
// Method    G groups on P ranks fall into parts that keep to themselves: P of one rank each where P divides
// G,
//           G of P/G consecutive ranks each where G divides P. place() takes these for nodes.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/model/routing_groups.h"
#include "evenkeel/placement/place.h"

namespace evenkeel {

// Nothing where neither number divides the other.
std::optional<int> parts_for_groups(int num_groups, int num_ranks);
// The same links with these parts as nodes.
Topology with_parts_as_nodes(const Topology& topology, int num_parts);

// Has place() keep the model's groups whole, where a checkpoint could be permuted to what it makes: one home
// for each expert, and as many on each rank. Returns what the user must know, or nothing. Throws
// InvalidArgument where the solver or objective does not keep groups.
std::string keep_groups_whole(const RoutingGroups& groups, int num_experts, int num_ranks,
                              PlaceOptions& options);

}  // namespace evenkeel
