// Places a layer regardless of moves, then numbers its ranks so that as many homes as possible stay.
//
// Method      PoolSolver and order_copies() on the given slots, node by node; level_pool() for several
//             recordings. Then ranks of a node with equally many slots are matched: pairs (new, old) by
//             decreasing number of common experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

// `loads` [W, E] of W recordings; 1 is the mean load of a rank. Returns [E] the ranks of each expert. Empty
// if an expert has homes on several nodes (nodes cannot be placed one by one), if slots of ranks differ so
// much that no packing is found, or if the deadline passes first.
std::vector<std::vector<std::int32_t>> fresh_homes(const LayerPlacement& before,
                                                   std::span<const double> loads,
                                                   std::span<const std::int32_t> slots_per_rank,
                                                   std::span<const std::int32_t> node_of_rank,
                                                   const Deadline& deadline);

}  // namespace evenkeel::internal
