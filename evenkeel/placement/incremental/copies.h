// Redundant experts beside a placement that few experts move from: the slots for them, and how many of them
// the moves allowed make.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/placement/incremental/incremental.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Beyond one of each expert, over all layers.
std::int64_t num_copies(const Placement& placement);

// [L, P]: the homes that there are, and with redundant experts as many free slots as make E + R in each
// layer, each on the rank that has fewest slots and capacity for one more. Throws InvalidArgument where a
// layer has more homes than that.
std::vector<std::int32_t> slots_for_copies(const Placement& from, int redundant_experts,
                                           const Topology& topology);

// A sentence for the reader where `placed` has fewer copies than E + R in a layer: how many there are, and
// how many moves all of them take, for which it is placed again. Empty where none is missing.
std::string say_missing_copies(const IncrementalProblem& problem, const Placement& placed,
                               int redundant_experts);

}  // namespace evenkeel
