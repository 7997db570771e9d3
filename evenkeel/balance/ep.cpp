#include "evenkeel/balance/ep.h"

#include "evenkeel/balance/internal/keep_home.h"

namespace evenkeel {

void Ep::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
              std::span<const std::int64_t> base_load) {
  internal::require_step_input(counts, placement, base_load);
  internal::keep_home(counts, placement, plan);
}

}  // namespace evenkeel
