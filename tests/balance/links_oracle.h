// A step over unequal links, by every plan there is.
#pragma once

#include <cstdint>

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// Of any plan whose pieces on ranks without a copy have at least min_segment assignments, or all of them;
// segments are in order of ranks. `enough` is one that is known.
double least_seconds(const StepLinks& links, const Counts& counts, const LayerPlacement& placement,
                     std::int64_t min_segment, double enough);

}  // namespace evenkeel
