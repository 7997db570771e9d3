// Placements for a router that chooses groups of experts first, such that a checkpoint can be permuted to
// them.
//
// Problem   the groups of such a router are consecutive experts. Experts in another order compute the same
//           only if whole groups map to whole groups (docs/checkpoints.md#groups).
// Method    G groups on P ranks split into independent parts: P parts of one rank each where P divides G, or
//           G parts of P/G consecutive ranks each where G divides P. place() treats these parts as nodes.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/model/routing_groups.h"
#include "evenkeel/placement/place.h"

namespace evenkeel {

// Returns nothing where neither number divides the other.
std::optional<int> parts_for_groups(int num_groups, int num_ranks);
// The same topology and links, with these parts as nodes.
Topology with_parts_as_nodes(const Topology& topology, int num_parts);

// Makes place() keep the model's groups whole if a checkpoint can be permuted to the result: one home for
// each expert, equally many on each rank. Returns what the user must know, or an empty string. Throws
// InvalidArgument if the solver or objective cannot keep groups.
std::string keep_groups_whole(const RoutingGroups& groups, int num_experts, int num_ranks,
                              PlaceOptions& options);

}  // namespace evenkeel
