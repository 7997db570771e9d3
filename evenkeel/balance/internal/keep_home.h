// Plain expert parallelism, for planners that have decided not to spill too.
#pragma once

#include "evenkeel/balance/internal/step_input.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// One segment for each copy of an expert. Counts and placement agree.
inline void keep_home(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
  plan.begin(placement);
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    if (counts.load(expert) == 0) continue;
    plan.begin_expert(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy) {
      const std::int64_t share = copy_share(counts.load(expert), homes.size(), copy);
      if (share > 0) plan.give(homes[copy], share);
    }
  }
}

}  // namespace evenkeel::internal
