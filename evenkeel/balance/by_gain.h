// Any planner, but everything stays at home in steps where moving work is not worth its cost (worth.h).
#pragma once

#include <memory>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/worth.h"

namespace evenkeel {

class ByGain final : public Planner {
 public:
  ByGain(std::unique_ptr<Planner> planner, const SpillCosts& costs)
      : planner_(std::move(planner)), costs_(costs) {}

  std::string_view name() const override { return planner_->name(); }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load = {}) override {
    planner_->plan(counts, placement, plan, base_load);
    if (plan.spilled() && seconds_gained(counts, placement, plan, costs_, base_load) <= 0)
      stay_.plan(counts, placement, plan, base_load);
  }

 private:
  std::unique_ptr<Planner> planner_;
  SpillCosts costs_;
  Ep stay_;
};

}  // namespace evenkeel
