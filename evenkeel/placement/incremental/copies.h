// Redundant experts in incremental placement: the slots for them, and how many of them the allowed moves
// create.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/placement/incremental/incremental.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// The number of copies beyond the first of each expert, over all layers.
std::int64_t num_copies(const Placement& placement);

// [L, P]: the slots that homes use now. With R redundant experts, free slots are added until each layer has R
// more slots than experts. Each is added to the rank with the fewest slots among those with capacity for one
// more. Throws InvalidArgument if a layer has more homes than that.
std::vector<std::int32_t> slots_for_copies(const Placement& from, int redundant_experts,
                                           const Topology& topology);

// A sentence for the reader if `placed` has fewer copies than requested: how many there are, and how many
// moves all of them would take. Solves again to find out. Empty if none is missing.
std::string describe_missing_copies(const IncrementalProblem& problem, const Placement& placed,
                                    int redundant_experts);

}  // namespace evenkeel
