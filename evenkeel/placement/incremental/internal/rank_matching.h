// Renumbers the ranks of a new placement (`made`) so that as many homes as possible of the placement in use
// (`live`) stay.
//
// Method      matches pairs (made, live) in the order of decreasing number of experts in common, then of rank
//             number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

// Returns live_of[made], the live item matched to each made item; n if unmatched. `common` is [n, n], a row
// for each made item; below 0 if the pair is not allowed.
std::vector<std::size_t> match_by_common(std::span<const int> common, std::size_t n);

// Renumbers the nodes of `made` to be as similar as possible to those of `live`, then the ranks in them. All
// nodes have equally many ranks. Only ranks with equally many experts are matched; if that leaves a rank
// unmatched, returns `made` unchanged.
LayerPlacement renumbered(const LayerPlacement& made, const LayerPlacement& live, int num_nodes);

}  // namespace evenkeel::internal
