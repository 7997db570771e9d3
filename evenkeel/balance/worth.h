// Whether moving work is worth what it costs in one step.
//
// Problem    Spilling takes work from the slowest rank and makes weights travel. Where routing is nearly even
//            it costs more than it gains.
// Method     Predicted gain: the worst rank's load at home less that under the plan, times the seconds of one
//            assignment. Predicted cost: what any step pays that moves work, and the most weights that one
//            rank sends or receives.
// Guarantee  The same answer on every rank that is given the same costs: it depends on the arguments alone.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct SpillCosts {
  double seconds_per_assignment = 0;  // its products, and the way there and back
  double seconds_per_transfer = 0;    // one expert's weights, and in training their gradients
  double seconds_per_step = 0;        // of a step that moves any work

  friend bool operator==(const SpillCosts&, const SpillCosts&) = default;
};

// Seconds that the plan is predicted to take less than every expert at home does; 0 for one that moves
// nothing. `base_load` as for Planner::plan().
double seconds_gained(const Counts& counts, const LayerPlacement& placement, const StepPlan& plan,
                      const SpillCosts& costs, std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
