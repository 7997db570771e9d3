// Placement that is level on several recordings at once. Traffic differs from hour to hour and from prefill
// to decode, and the placement has to serve all of it.
//
// Problem     as replicate(): fill the slots of all ranks, each expert at least once, with its load split
//             evenly over its copies. In each layer the heaviest rank of the worst recording is to be as
//             light as possible. A recording's loads are taken as shares of their sum, so its length does not
//             matter.
// Method      copies go to the experts with the largest share in any recording. Then a level search: largest
//             first, then swaps of two copies that lower a potential over all recordings
//             (internal/pool/level_search.h). With groups, the same search assigns groups to nodes, then
//             copies to the ranks of each node. In layers where the placement of the sum of all recordings is
//             better, the search starts from that placement.
// Cost        a layer: swaps x slots x slots of a rank x recordings; measured in
//             docs/placement.md#several-recordings.
// Guarantee   in the worst recording, averaged over layers, never worse than replicate() of the sum. `bound`:
//             no placement of the same kind has a lower max/mean in the worst recording. The result depends
//             on the input alone.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct RobustProblem {
  int num_recordings = 0;
  // The problem for all recordings; its loads are [W, L, E]. A rank holds an expert at most once. If a rank
  // has more slots than there are experts, the copies are those of replicate().
  ReplicaProblem of_each;
};

struct RobustSolution {
  ReplicaSolution placed;             // max_over_mean and bound are of the worst recording
  std::vector<double> max_over_mean;  // [W, L]
};

// Throws as replicate() does, and InvalidArgument where there is no recording.
RobustSolution replicate_robustly(const RobustProblem& problem);

}  // namespace evenkeel
