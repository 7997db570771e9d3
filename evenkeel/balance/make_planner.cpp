// Turns options into the planner they name.
#include <fmt/format.h>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/balance/level.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

std::unique_ptr<Planner> make_planner(const PlannerOptions& options) {
  if (options.capacity_factor_thousandths < 1000)
    throw InvalidArgument("capacity_factor",
                          fmt::format("{} thousandths", options.capacity_factor_thousandths),
                          "1000 or more: ranks must be able to hold the mean");
  if (options.min_segment < 0)
    throw InvalidArgument("min_segment", fmt::format("{}", options.min_segment), "0 or more");
  if (options.imbalance_threshold_thousandths < 0)
    throw InvalidArgument("imbalance_threshold",
                          fmt::format("{} thousandths", options.imbalance_threshold_thousandths),
                          "0 (always plan) or more");
  switch (options.kind) {
    case PlannerOptions::Kind::ep:
      return std::make_unique<Ep>();
    case PlannerOptions::Kind::least_loaded:
      return std::make_unique<LeastLoaded>(options);
    case PlannerOptions::Kind::level:
      return std::make_unique<Level>(options);
  }
  EVENKEEL_CHECK(false);
}

}  // namespace evenkeel
