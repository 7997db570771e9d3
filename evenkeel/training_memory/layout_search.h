// Every layout of a number of devices, ranked by what it leaves space for.
//
// Problem    N devices are there; which tp, pp, ep and dp hold the model, and which of them is to be tried
//            first?
// Method     all of tp in 1, 2, 4, 8 that divide the heads, pp up to the layers, ep that divides the experts
//            and lies within a stage, dp what is left; cp, vp and etp as the set-up has them. Each is asked
//            whether it fits.
// Order      those that fit; of these the fewest chunks, then the least tp x pp, which is what costs messages
//            and idle time, then the fewest bytes. Speed is not predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

struct LayoutFit {
  Parallelism parallel;
  Fit fit;
};

// Best first; empty where cp, vp and etp of the set-up leave none. Throws InvalidArgument for fewer devices
// than one or more than most_degree, and what fit() throws.
std::vector<LayoutFit> rank_layouts(const MemoryModel& memory, std::int64_t devices, ReceivedRows received,
                                    const DeviceMemory& device);

}  // namespace evenkeel
