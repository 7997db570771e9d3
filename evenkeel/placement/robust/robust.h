// Placement that is level on several recordings at once: traffic differs from hour to hour and from prefill
// to decode, and the placement has to serve all of it.
//
// Problem     as replicate(): fill the slots of all ranks, each expert at least once, its load split evenly
//             over its copies. In each layer the heaviest rank of the worst recording is to be lightest; a
//             recording counts by shares of its own load, however long it is.
// Method      copies go to the experts whose largest share over the recordings is largest; then a level
// search:
//             largest first, and exchanges of two copies that lower all recordings together. With groups, the
//             same search gives groups to nodes, then copies to the ranks of each node. Where the placement
//             of the sum of all recordings is better in a layer, the search goes on from there.
// Cost        a layer: exchanges x slots x slots of a rank x recordings; measured in
//             docs/placement.md#several-recordings.
// Guarantee   on the worst recording, mean of layers, never worse than replicate() of the sum. `bound`: no
//             placement of the same kind has a lower max/mean in the worst recording. The result depends on
//             the input alone.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct RobustProblem {
  int num_recordings = 0;
  // Of all recordings: its loads are [W, L, E]. An expert is on a rank once, or as replicate() has it where a
  // rank has more slots than there are experts.
  ReplicaProblem of_each;
};

struct RobustSolution {
  ReplicaSolution placed;             // max_over_mean and bound are of the worst recording
  std::vector<double> max_over_mean;  // [W, L]
};

// Throws as replicate() does, and InvalidArgument where there is no recording.
RobustSolution replicate_robustly(const RobustProblem& problem);

}  // namespace evenkeel
