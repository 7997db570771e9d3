// --imbalance-threshold auto: what it costs to move work, for planners that decide by it.
#pragma once

#include "cli/experiment.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/cost/cost_model.h"

namespace evenkeel::cli {

// By a file of costs, or as measured now on a layer of this shape.
SpillCosts spill_costs_of(const MoeShape& shape, int ranks, bool backward, const CostModel* given);

// In two lines, for people.
std::string describe(const SpillCosts& costs);

}  // namespace evenkeel::cli
