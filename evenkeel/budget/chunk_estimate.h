// About how many chunks a step would be cut into, before any boundary is looked at: as if every chunk had the
// same share of each rank's load.
#pragma once

#include <cstdint>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"

namespace evenkeel {

// Within the limits, of the plan that the loads are of; no more than `most`. O(P).
std::int64_t estimated_chunks(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most);

}  // namespace evenkeel
