// Places a copy of the hot experts on every node, for servers whose ranks use the copy in their own node.
//
// Problem     under Dispatch::nearest and fixed, a rank takes the first copy in its node. So an expert with
//             one copy on every node is split exactly evenly over nodes, without random draws. Fill the slots
//             of all ranks this way, with the heaviest rank as light as possible.
// Method      the hottest experts go on every node. The others, largest first, go to the node that is
//             lightest at that point. In each node, experts are packed on ranks as in replicas.h. Slots left
//             over that are too few for one more expert on all nodes hold second copies of the coldest
//             experts.
// Cost        for each layer O(E log E), plus the packing.
// Guarantee   none: the caller compares the result with other placements by the load that each rank gets in
//             service.
#pragma once

#include <optional>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

// Returns nothing if the problem has no such placement: nodes differ in size, experts are grouped, there are
// too few copies to put one expert on all nodes, or a rank has more slots than its node has experts. Leaves
// max_over_mean and bound empty.
std::optional<ReplicaSolution> replicate_on_every_node(const ReplicaProblem& problem);

}  // namespace evenkeel
