#include "evenkeel/balance/ep.h"

#include "evenkeel/balance/internal/step_input.h"

namespace evenkeel {

void Ep::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
              std::span<const std::int64_t> base_load) {
  internal::require_step_input(counts, placement, base_load);
  keep_home(counts, placement, plan);
}

void Ep::keep_home(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
  plan.begin(placement);
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    if (counts.load(expert) == 0) continue;
    plan.begin_expert(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy) {
      const std::int64_t share = internal::copy_share(counts.load(expert), homes.size(), copy);
      if (share > 0) plan.give(homes[copy], share);
    }
  }
}

}  // namespace evenkeel
