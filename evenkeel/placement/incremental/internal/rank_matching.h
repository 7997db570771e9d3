// A placement made without regard to the one that is live, under rank numbers that keep as many homes as
// possible.
//
// Method      pairs (made, live) by decreasing number of experts in common, then by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

// live_of[made], or n for one that is left over. common [n, n], rows of the made ones; below 0 where the pair
// may not be.
std::vector<std::size_t> match_by_common(std::span<const int> common, std::size_t n);

// `made` with nodes as alike as possible to those of `live`, and then the ranks in them. Nodes have equally
// many ranks. Only ranks with equally many experts take each other's place; where that leaves one over,
// `made` comes back as it is.
LayerPlacement renumbered(const LayerPlacement& made, const LayerPlacement& live, int num_nodes);

}  // namespace evenkeel::internal
