// Copies on every node, for servers whose ranks take the copy in their node.
//
// Problem     where a rank takes the first copy in its node (Dispatch::nearest and fixed), an expert that is
//             once on every node is split exactly evenly over nodes, and nothing is drawn. Fill the slots of
//             all ranks so, with the heaviest rank as light as may be.
// Method      the hottest experts are on every node; the others, largest first, are on the node that is
//             lightest by then; in each node ranks are packed as in replicas.h. Slots too few to put one
//             more expert on all nodes hold the coldest experts a second time.
// Cost        a layer: E log E, and the packing.
// Guarantee   none: whoever calls compares it with other placements by what is served.
#pragma once

#include <optional>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

// Nothing where the problem has no such placement: nodes of unlike size, groups, too few copies for one
// expert on all nodes, or a rank with more slots than experts of its node. Its max/mean and bounds are left
// empty.
std::optional<ReplicaSolution> replicate_on_every_node(const ReplicaProblem& problem);

}  // namespace evenkeel
