// Experts that a plan computes on other ranks than their owners. In training, their gradients go back to the
// owners.
#pragma once

#include <algorithm>

#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Calls take(expert, owner, rank) once for each expert and each rank that computes some of it without owning
// it, in the plan's order.
template <class Take>
void for_each_away(const StepPlan& plan, const LayerPlacement& placement, const Take& take) {
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const RankId owner = placement.owner(expert);
    const auto segments = plan.segments(expert);
    for (auto segment = segments.begin(); segment != segments.end(); ++segment) {
      const bool seen =
          std::ranges::find(segments.begin(), segment, segment->rank, &Segment::rank) != segment;
      if (segment->rank != owner && !seen) take(expert, owner, segment->rank);
    }
  }
}

}  // namespace evenkeel
