// The device planner, run on the host.
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
  std::int32_t fell_back_to_ep = 0;
};

// `run(plan)` must call plan(team) on every lane of a team.
template <class Run>
FlatPlan plan_with(const Run& run, const Counts& counts, const LayerPlacement& placement,
                   const PlannerOptions& options, std::span<const std::int64_t> base_load,
                   int most_borrowed) {
  const cuda::PlacementTables tables(placement);
  const cuda::PlacementView homes = tables.view();
  const std::vector<std::int32_t> by_source(counts.rows().begin(), counts.rows().end());
  const std::vector<std::int32_t> base(base_load.begin(), base_load.end());
  std::vector<std::int32_t> buffers(static_cast<std::size_t>(cuda::PlannerBuffers::integers(homes)), -77);
  std::vector<std::int32_t> sums(by_source.size(), -77);
  FlatPlan flat(homes.num_experts, homes.num_slots, homes.num_ranks);
  cuda::PlanRules rules = cuda::rules_of(options);
  rules.most_borrowed = most_borrowed;
  run([&](const auto& team) {
    cuda::StepPlanning(team, rules, {by_source.data(), 1, sums.data()},
                       cuda::PlannerBuffers::in(buffers.data(), homes))
        .plan(homes, base.empty() ? nullptr : base.data(), flat.view());
  });
  return flat;
}

// Plans with a team of one lane.
FlatPlan plan_on_host(const Counts& counts, const LayerPlacement& placement, const PlannerOptions& options,
                      std::span<const std::int64_t> base_load = {}, int most_borrowed = cuda::kMostLoad);

// The arrays of a plan made by balance/.
FlatPlan flat(const StepPlan& plan, const LayerPlacement& placement);

}  // namespace evenkeel::testing
