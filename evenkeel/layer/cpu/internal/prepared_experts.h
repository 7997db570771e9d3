// The weights that a rank multiplies with, in the order in which the products want them: those at home, and
// those that it borrows for a pass.
//
// Borrowed ones are packed once, as they arrive, and stay packed for all chunks of the pass; the plain
// tensors do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/device.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// For what passes borrowed weights are wanted. In backward: with nothing to compute again, by chunk, or all
// at once.
inline constexpr Pass kForward[] = {Pass::forward};
inline constexpr Pass kBackward[] = {Pass::backward};
inline constexpr Pass kBackwardAgain[] = {Pass::backward, Pass::recompute};
inline constexpr Pass kBackwardWhole[] = {Pass::backward, Pass::forward};

class PreparedExperts {
 public:
  // With space for borrowing all experts there are, so that no step allocates.
  PreparedExperts(const ExpertFfn& ffn, Arena& arena, const LayerPlacement& placement, RankId me,
                  bool with_backward);

  // `weights` in the order of placement.natives(me), whole; the tensors must stay as they are until the next
  // call.
  void set_natives(std::span<const ExpertWeights> weights);

  // Collective. Carries out the plan's transfers and prepares what arrives for each of `passes`, which must
  // stay.
  void borrow(const StepPlan& plan, std::span<const Pass> passes, WeightTransfer& transfer);
  void give_back();
  // Bytes that one borrowed expert takes.
  std::int64_t bytes_each(std::span<const Pass> passes) const;

  // Of an expert at home or borrowed; null for a pass that was not asked for.
  const std::byte* of(ExpertId expert, Pass pass) const;

 private:
  // Prepared one behind the other, each for all the passes.
  struct Packed {
    std::vector<ExpertId> experts;
    std::span<const Pass> passes;
    std::byte* memory = nullptr;
  };
  std::span<std::byte> form(const Packed& packed, std::size_t index, std::size_t pass) const;
  void prepare(const Packed& packed, std::size_t index, const ExpertWeights& weights) const;

  const ExpertFfn& ffn_;
  Arena& arena_;
  std::vector<ExpertParts> parts_;  // [E] the caller's tensors; empty where foreign
  Packed natives_, borrowed_;
  std::unique_ptr<MemoryRange> native_memory_;
  Buffer borrowed_memory_;
};

}  // namespace evenkeel::internal
