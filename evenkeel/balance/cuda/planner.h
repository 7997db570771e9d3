// Plans a step on a GPU: one launch turns the counts of all ranks into the step plan. The plan is identical
// to that of the CPU planners (balance/).
//
// Method  One block. Placement, loads and all that decisions need lie in its shared memory. All threads share
//         the work over experts, slots and moves; one warp makes the greedy decisions.
// Cost    A launch and a read of the counts; for level and least-loaded also a few hundred instructions a
//         move.
// Limits  Fewer than 2^30 assignments a step, base loads included; docs/cuda.md#planning.
// Source  docs/algorithms.md.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/rules.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel {
class CudaStream;
}

namespace evenkeel::cuda {

class CudaPlanner {
 public:
  // `homes` must be in device memory, in one block (placement_integers()), and outlive the planner. Plans on
  // the thread's current GPU. Throws Unsupported where a layer is too large for one block's shared memory.
  CudaPlanner(const PlacementView& homes, const PlanRules& rules);

  // The size of plan()'s workspace in device memory, in integers.
  std::int64_t workspace_integers() const;

  // `counts` [parts][P][E] add up over parts to the step's counts; `base_load` [P] or null. No host
  // synchronisation.
  void plan(const std::int32_t* counts, int parts, const std::int32_t* base_load, std::int32_t* workspace,
            const PlanView& plan, CudaStream& stream) const;

  const PlanRules& rules() const { return rules_; }

 private:
  PlacementView homes_;
  PlanRules rules_;
  int shared_bytes_ = 0;
  bool counts_in_shared_ = false;
};

}  // namespace evenkeel::cuda
