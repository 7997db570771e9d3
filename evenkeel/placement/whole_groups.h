// Placements for a router that chooses groups of experts first. They keep groups whole, so that a checkpoint
// can be permuted to them.
//
// Problem   the groups of such a router are consecutive experts. A model with its experts in another order
//           computes the same only if whole groups map to whole groups (docs/checkpoints.md#groups).
// Method    the placement of G groups on P ranks is split into independent parts. If P divides G, there are P
//           parts of one rank each. If G divides P, there are G parts of P/G consecutive ranks each. place()
//           treats these parts as nodes.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/model/routing_groups.h"
#include "evenkeel/placement/place.h"

namespace evenkeel {

// The number of parts. Returns nothing where neither number divides the other.
std::optional<int> parts_for_groups(int num_groups, int num_ranks);
// The same topology and links, with the parts as nodes.
Topology with_parts_as_nodes(const Topology& topology, int num_parts);

// Makes place() keep the model's groups whole if a checkpoint can be permuted to the result, which needs one
// home for each expert and equally many experts on each rank. Returns a note for the user, or an empty
// string. Throws InvalidArgument if the solver or objective cannot keep groups.
std::string keep_groups_whole(const RoutingGroups& groups, int num_experts, int num_ranks,
                              PlaceOptions& options);

}  // namespace evenkeel
