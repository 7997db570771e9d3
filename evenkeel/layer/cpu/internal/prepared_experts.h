// The weights that a rank multiplies with, packed as the products need them: native weights, and weights
// borrowed for a pass.
//
// Borrowed weights are packed once, as they arrive, and stay packed for all chunks of the pass; the plain
// tensors are not kept.
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

// The passes for which borrowed weights are prepared. In backward: without recomputing, with recomputing by
// chunk, or with recomputing the whole forward.
inline constexpr Pass kForward[] = {Pass::forward};
inline constexpr Pass kBackward[] = {Pass::backward};
inline constexpr Pass kBackwardRecompute[] = {Pass::backward, Pass::recompute};
inline constexpr Pass kBackwardWhole[] = {Pass::backward, Pass::forward};

class PreparedExperts {
 public:
  // Reserves space for borrowing all experts, so that no step allocates.
  PreparedExperts(const ExpertFfn& ffn, Arena& arena, const LayerPlacement& placement, RankId me,
                  bool with_backward);

  // `weights` are complete and in the order of placement.natives(me). The tensors must stay unchanged until
  // the next call.
  void set_natives(std::span<const ExpertWeights> weights);

  // Collective. Carries out the plan's transfers and prepares the arriving weights for each of `passes`,
  // which must stay valid until give_back().
  void borrow(const StepPlan& plan, std::span<const Pass> passes, WeightTransfer& transfer);
  void give_back();
  // Bytes of one borrowed expert.
  std::int64_t bytes_each(std::span<const Pass> passes) const;

  // The prepared weights of a native or borrowed expert; null if they were not prepared for `pass`.
  const std::byte* of(ExpertId expert, Pass pass) const;

 private:
  // Consecutive prepared experts, each prepared for all passes.
  struct Packed {
    std::vector<ExpertId> experts;
    std::span<const Pass> passes;
    std::byte* memory = nullptr;
  };
  std::span<std::byte> form(const Packed& packed, std::size_t index, std::size_t pass) const;
  void prepare(const Packed& packed, std::size_t index, const ExpertWeights& weights) const;

  const ExpertFfn& ffn_;
  Arena& arena_;
  std::vector<ExpertParts> parts_;  // [E] the caller's tensors; empty for foreign experts
  Packed natives_, borrowed_;
  std::unique_ptr<MemoryRange> native_memory_;
  Buffer borrowed_memory_;
};

}  // namespace evenkeel::internal
