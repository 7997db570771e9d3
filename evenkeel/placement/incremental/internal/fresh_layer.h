// A layer placed without regard to moves, then its ranks numbered so that as many homes as possible stay.
//
// Method      PoolSolver and order_copies() on the slots that there are, node by node, or level_pool() for
//             several recordings; of ranks with as many slots in a node, pairs (new, old) are matched by
//             decreasing number of experts in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

// loads [W, E] of W recordings, 1 the mean of a rank. [E] ranks of each expert; empty where an expert is at
// home on several nodes, so that nodes cannot be placed one by one, where ranks have so unlike slots that no
// packing was found, or if the deadline passed before.
std::vector<std::vector<std::int32_t>> fresh_homes(const LayerPlacement& before,
                                                   std::span<const double> loads,
                                                   std::span<const std::int32_t> slots_per_rank,
                                                   std::span<const std::int32_t> node_of_rank,
                                                   const Deadline& deadline);

}  // namespace evenkeel::internal
