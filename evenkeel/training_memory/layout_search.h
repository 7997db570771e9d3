// Every layout of a number of devices, ranked by the memory it leaves.
//
// Problem   Given N devices: which tp, pp, ep and dp hold the model, and which of them should be tried first?
// Method    Tries all tp in 1, 2, 4, 8 that divide the heads, pp up to the number of layers, ep that divides
//           the experts and the devices of a stage; dp follows. cp, vp and etp are the set-up's. Asks for
//           each whether it fits.
// Order     Layouts that fit come first. Among them: the fewest chunks, then the smallest tp x pp (which
//           costs messages and idle time), then the fewest bytes. Speed is not predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

struct LayoutFit {
  Parallelism parallel;
  Fit fit;
};

// Best first; empty if the set-up's cp, vp and etp allow none. Throws InvalidArgument if `devices` is below 1
// or above most_degree, and what fit() throws.
std::vector<LayoutFit> rank_layouts(const MemoryModel& memory, std::int64_t devices, ReceivedRows received,
                                    const DeviceMemory& device);

}  // namespace evenkeel
