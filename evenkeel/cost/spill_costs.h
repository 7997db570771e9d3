// The costs that a decision by gain needs (balance/planner.h), for a layer on a machine whose costs are
// known.
#pragma once

#include <cstdint>

#include "evenkeel/balance/planner.h"
#include "evenkeel/cost/cost_model.h"

namespace evenkeel {

// An expert's numbers and where they are: elements of `bytes` each, rows of `hidden` of them.
struct SpilledExpert {
  std::int64_t elements = 0;
  std::int64_t bytes = 4;
  std::int64_t hidden = 0;
};

// Costs of one step. An assignment is multiplied, and its row travels there and back. Weights travel; they
// are packed and read once more than at home. In backward they are packed again, and gradients in f32 are
// written, travel and are added. The cost of moving is taken twice, since it is more than these parts.
SpillCosts spill_costs(const SpilledExpert& expert, const CostModel& cost, bool backward);

}  // namespace evenkeel
