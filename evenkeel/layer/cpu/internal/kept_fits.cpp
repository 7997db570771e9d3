#include "evenkeel/layer/cpu/internal/kept_fits.h"

#include <algorithm>

namespace evenkeel::internal {

// Gradients arrive when the kept chunks are gone, but what they borrow is not.
bool kept_fits(const CpuLayer& layer, const SavedStep& step) {
  ChunkShape shape = layer.budget.chunk;
  shape.workspace = step.decision.workspace;
  const bool all_kept = step.chunks().back().kept;
  const std::int64_t borrowing =
      borrowing_bytes(layer, step.plan(), all_kept ? kBackward : again_passes(layer));
  const std::int64_t gap = layer.parts.arena.largest_gap_bytes();
  std::int64_t gap_behind = gap;
  for (const KeptChunk& kept : step.kept) {
    const ChunkLoad load = kept.dispatched.load();
    const std::int64_t held = held_bytes(shape, load, load.positions_here);
    if (borrowing + backward_bytes(shape, load, load.positions_here) - held > gap) return false;
    gap_behind = std::max(gap_behind, layer.parts.arena.largest_gap_bytes_without(kept.saved.buffer()));
  }
  const bool arrive = layer.transfer.awaits_gradients(step.plan(), layer.parts.placement);
  const std::int64_t arriving = arrive ? shape.gradient_bytes : 0;
  return borrowing + arriving <= gap_behind;
}

// Wherever gradients are of borrowed experts, they take no less than the weights did on their arrival.
std::int64_t borrowing_bytes(const CpuLayer& layer, const StepPlan& plan, std::span<const Pass> passes) {
  const WeightTransfer& transfer = layer.transfer;
  return transfer.borrows(plan) * layer.borrowed.bytes_each(passes) +
         transfer.away_bytes(plan, layer.parts.placement);
}

std::span<const Pass> again_passes(const CpuLayer& layer) {
  if (layer.recompute() == Recompute::whole) return kBackwardWhole;
  return kBackwardAgain;
}

}  // namespace evenkeel::internal
