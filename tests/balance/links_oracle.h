// The fastest step over unequal links, found by trying all plans.
#pragma once

#include <cstdint>

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// The least seconds of any plan. A piece on a rank without a copy has at least `min_segment` assignments, or
// all of the expert's; segments are in rank order. `enough` is the time of a known plan: an upper bound.
double least_seconds(const StepLinks& links, const Counts& counts, const LayerPlacement& placement,
                     std::int64_t min_segment, double enough);

}  // namespace evenkeel
