// Finds every layout on a given number of devices, and ranks the layouts by how well they fit into memory.
//
// Problem   Given N devices, with which tp, pp, ep and dp does the model fit, and which of these layouts
//           should be tried first?
// Method    Checks whether each possible layout fits: tp is 1, 2, 4 or 8 and divides the heads, pp is at most
//           the number of layers, ep divides the experts and the devices of a stage. dp follows from these.
//           cp, vp and etp are those of the set-up.
// Order     Layouts that fit come first. Among them, those with the fewest chunks come first, then those with
//           the smallest tp x pp (a large one costs messages and idle time), then those with the fewest
//           bytes. Speed is not predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

struct LayoutFit {
  Parallelism parallel;
  Fit fit;
};

// The layouts, best first. Empty if none is possible with the set-up's cp, vp and etp. Throws InvalidArgument
// if `devices` is below 1 or above most_degree. Also throws what fit() throws.
std::vector<LayoutFit> rank_layouts(const MemoryModel& memory, std::int64_t devices, ReceivedRows received,
                                    const DeviceMemory& device);

}  // namespace evenkeel
