// Placement that is level on several recordings at once. Traffic differs from hour to hour and from prefill
// to decode, and the placement has to serve all of it.
//
// Problem     as replicate(): fill the slots of all ranks, each expert at least once; an expert's load is
//             split evenly over its copies. In each layer, the heaviest rank in the worst recording is to be
//             as light as possible. A recording's loads are taken as shares of their sum, so its length does
//             not matter.
// Method      copies go to the experts with the largest share in any recording. A level search
//             (internal/pool/level_search.h) then puts copies on ranks, largest first, and swaps pairs of
//             copies as long as this lowers a potential over all recordings. With groups, the same search
//             assigns groups to nodes, then copies to the ranks of each node. If the placement for the sum of
//             all recordings is better in a layer, the search starts again from that placement.
// Cost        for each layer: swaps x slots x slots per rank x recordings; measured in
//             docs/placement.md#several-recordings.
// Guarantee   in the worst recording, the average over layers is never worse than that of replicate() for the
//             sum of the recordings. No placement of the same kind has a lower max/mean in the worst
//             recording than `bound`. The result depends on the input alone.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct RobustProblem {
  int num_recordings = 0;
  // The problem, the same for all recordings except the loads, which are [W, L, E]. A rank holds an expert at
  // most once. If a rank has more slots than there are experts, replicate() chooses the copies.
  ReplicaProblem of_each;
};

struct RobustSolution {
  ReplicaSolution placed;             // max_over_mean and bound are of the worst recording
  std::vector<double> max_over_mean;  // [W, L]
};

// Throws as replicate() does, and InvalidArgument where there is no recording.
RobustSolution replicate_robustly(const RobustProblem& problem);

}  // namespace evenkeel
