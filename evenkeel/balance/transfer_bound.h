// How few weight transfers any plan needs that keeps every rank at or below a given load.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// A number of transfers that no plan with ranks at most `worst_load` beats, whatever its min_segment; not
// always attained. Loads of ranks include `base_load`, as a planner sees them. Method and cost:
// internal/transfer_bound.h.
std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
