// The weights that a rank borrows for a step, in the order in which the products want them.
//
// They are packed once, as they arrive, and stay packed for all chunks of the pass; the plain tensors do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// For what passes borrowed weights are wanted. In backward: with nothing to compute again, by chunk, or all
// at once.
inline constexpr Pass kForward[] = {Pass::forward};
inline constexpr Pass kBackward[] = {Pass::backward};
inline constexpr Pass kBackwardAgain[] = {Pass::backward, Pass::recompute};
inline constexpr Pass kBackwardWhole[] = {Pass::backward, Pass::forward};

class BorrowedExperts {
 public:
  // Space for all experts there are, so that no step allocates.
  BorrowedExperts(const ExpertFfn& ffn, Arena& arena, int num_experts) : ffn_(ffn), arena_(arena) {
    experts_.reserve(static_cast<std::size_t>(num_experts));
  }

  // Collective. Carries out the plan's transfers and prepares what arrives for each of `passes`, which must
  // stay.
  void fetch(const StepPlan& plan, std::span<const ExpertParts> natives, std::span<const Pass> passes,
             WeightTransfer& transfer);
  // Null for a pass that was not asked for.
  const std::byte* prepared(ExpertId expert, Pass pass) const;
  void release();

  // Bytes that one expert takes.
  std::int64_t bytes_each(std::span<const Pass> passes) const;

 private:
  std::span<std::byte> form(std::size_t expert, std::size_t pass) const;

  const ExpertFfn& ffn_;
  Arena& arena_;
  Buffer prepared_;  // by expert, then by pass
  std::span<const Pass> passes_;
  std::vector<ExpertId> experts_;
};

}  // namespace evenkeel::internal
