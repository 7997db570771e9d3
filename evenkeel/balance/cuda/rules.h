// Planner options for planning on a device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/error.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

// PlannerOptions, cut down to 32 bits where more makes no difference.
struct PlanRules {
  PlannerOptions::Kind kind = PlannerOptions::Kind::least_loaded;
  std::int64_t capacity_factor_thousandths = 1000;
  std::int32_t min_segment = 1024;
  std::int64_t imbalance_threshold_thousandths = 1300;
  // Plain ep replaces a plan by which a rank would borrow more experts than this.
  std::int32_t most_borrowed = kMostLoad;
};

// Converts options for a planner on a device. What is cut off makes no difference below kMostLoad
// assignments. Throws InvalidArgument if costs or links are given or borrow slots are limited.
inline PlanRules rules_of(const PlannerOptions& options) {
  if (options.costs || options.links)
    throw InvalidArgument(options.costs ? "costs" : "links", "a device planner does not predict seconds",
                          "an imbalance threshold instead");
  if (options.borrow_slots < kUnlimitedSlots)
    throw InvalidArgument("borrow_slots", "a device planner does not support a slot limit",
                          "GpuOptions::borrow_slots");
  constexpr std::int64_t kMostRatio = std::int64_t{1} << 31;
  PlanRules rules;
  rules.kind = options.kind;
  rules.capacity_factor_thousandths = std::min(options.capacity_factor_thousandths, kMostRatio);
  rules.min_segment = static_cast<std::int32_t>(std::min<std::int64_t>(options.min_segment, kMostLoad));
  rules.imbalance_threshold_thousandths = std::min(options.imbalance_threshold_thousandths, kMostRatio);
  return rules;
}

}  // namespace evenkeel::cuda
