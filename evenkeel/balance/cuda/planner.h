// Planning on a GPU: one launch turns the counts of all ranks into the step plan, with the integers of
// the planners of balance/.
//
// Method  One block; placement, loads and all that is decided on lie in its shared memory. Work over
//         experts, slots and moves is shared by all its threads, greedy decisions are made by one warp.
// Cost    A launch and a read of the counts; level and least-loaded some hundred instructions a move.
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
  // `homes` lies in device memory, in one piece (placement_integers()), and must stay. For the thread's
  // current GPU. Throws Unsupported where a layer is too large for one block's shared memory.
  CudaPlanner(const PlacementView& homes, const PlanRules& rules);

  // Integers of device memory that plan() works in.
  std::int64_t workspace_integers() const;

  // `counts` [parts][P][E] add up to the step's; `base_load` [P] or null. No host synchronisation.
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
