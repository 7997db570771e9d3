// How long a planner takes for one plan.
#pragma once

#include "evenkeel/balance/planner.h"

namespace evenkeel {

// Median over many plans, without the first ones, which warm up: single calls take microseconds. No plan is
// begun after 50 ms, so that of slow ones the only one counts. `plan` is then the plan.
double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan);

}  // namespace evenkeel
