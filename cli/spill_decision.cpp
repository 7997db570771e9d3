#include "cli/spill_decision.h"

#include <fmt/format.h>

#include "cli/calibrate.h"
#include "evenkeel/cost/spill_costs.h"

namespace evenkeel::cli {

SpillCosts spill_costs_of(const MoeShape& shape, int ranks, bool backward, const CostModel* given) {
  const CostModel cost = given != nullptr ? *given : measure_costs(shape, ranks);
  return spill_costs({shape.expert.elements(), bytes_of(shape.expert.type), shape.expert.hidden}, cost,
                     backward);
}

std::string describe(const SpillCosts& costs) {
  return fmt::format(
      "imbalance-threshold auto: work moves where that is predicted to pay\n"
      "  {:.1f} us an assignment, {:.0f} us an expert that moves, {:.0f} us a step that moves any",
      1e6 * costs.seconds_per_assignment, 1e6 * costs.seconds_per_transfer, 1e6 * costs.seconds_per_step);
}

}  // namespace evenkeel::cli
