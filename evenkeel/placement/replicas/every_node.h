// Copies on every node, for servers whose ranks take the copy in their node.
//
// Problem     under Dispatch::nearest and fixed, a rank takes the first copy in its node. So an expert with
//             one copy on every node is split exactly evenly over nodes, and no draw is needed. Fill the
//             slots of all ranks this way, with the heaviest rank as light as possible.
// Method      the hottest experts go on every node. The others, largest first, go to the node that is
//             lightest at that point. In each node ranks are packed as in replicas.h. If the slots left over
//             are too few for one more expert on all nodes, they hold second copies of the coldest experts.
// Cost        a layer: E log E, and the packing.
// Guarantee   none: the caller compares it with other placements as served.
#pragma once

#include <optional>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

// Returns nothing if the problem has no such placement: nodes of unlike size, groups, too few copies for one
// expert on all nodes, or a rank with more slots than its node has experts. Leaves max/mean and bounds empty.
std::optional<ReplicaSolution> replicate_on_every_node(const ReplicaProblem& problem);

}  // namespace evenkeel
