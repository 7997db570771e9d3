// The device's planner run on the host, by a team of one lane.
#pragma once

#include <vector>

#include "evenkeel/balance/cuda/internal/plan_step.h"
#include "evenkeel/balance/cuda/rules.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/cuda/placement_tables.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::testing {

// A step plan in flat arrays.
struct FlatPlan {
  FlatPlan(int experts, int slots, int ranks);
  cuda::PlanView view();
  bool operator==(const FlatPlan&) const = default;

  std::vector<std::int32_t> segment_begin, segment_rank, segment_end, transfer_expert, transfer_from,
      transfer_to, rank_loads;
  std::int32_t num_transfers = 0;
  std::int32_t gave_way = 0;
};

FlatPlan plan_on_host(const Counts& counts, const LayerPlacement& placement, const PlannerOptions& options,
                      std::span<const std::int64_t> base_load = {}, int most_borrowed = cuda::kMostLoad);

// The same arrays from a plan of balance/.
FlatPlan flat(const StepPlan& plan, const LayerPlacement& placement);

}  // namespace evenkeel::testing
