#include "evenkeel/layer/internal/saved_limits.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

ChunkLoad load_of(const LayerBody& layer, const Dispatched& dispatched) {
  ChunkLoad load;
  load.tokens = dispatched.tokens;
  load.assignments_kept = dispatched.peer(layer.comm.rank()).in_positions;
  load.assignments = load.assignments_kept + dispatched.positions_elsewhere;
  load.positions_here = dispatched.positions_here;
  load.rows_here = dispatched.rows_here;
  load.rows_received = dispatched.rows_here - dispatched.own_rows;
  load.rows_elsewhere = dispatched.rows_elsewhere;
  load.groups = static_cast<std::int64_t>(dispatched.groups().size());
  return load;
}

// Of an expert with several homes the gradient is the first one's; which positions are of such experts is not
// told apart.
ForeignLoad foreign_load(const LayerBody& layer, const Dispatched& dispatched, const StepPlan& plan) {
  const WeightTransfer& transfer = layer.transfer;
  const std::int64_t away = transfer.away_bytes(plan, layer.placement) / layer.budget.chunk.gradient_bytes;
  const bool single = layer.placement.has_single_homes();
  return {transfer.borrows(plan), away, single ? dispatched.positions_borrowed : dispatched.positions_here,
          transfer.awaits_gradients(plan, layer.placement)};
}

// Whether each part has its memory, when what was saved for the parts before it is gone.
bool parts_fit(const LayerBody& layer, const KeptChunk& kept, const StepPlan& plan) {
  const ChunkShape shape = layer.chunk_shape();
  const ChunkLoad load = load_of(layer, kept.dispatched);
  const ForeignLoad foreign = foreign_load(layer, kept.dispatched, plan);
  const SavedActivations& saved = kept.saved;
  const std::int64_t held = held_bytes(shape, load, 0);
  const std::int64_t gap_behind = layer.arena.largest_gap_bytes_without({&saved.own(), &saved.foreign()});
  return own_part_bytes(shape, load, {}) - held <= layer.arena.largest_gap_bytes() &&
         foreign_part_bytes(shape, load, foreign, 0) - held <=
             layer.arena.largest_gap_bytes_without({&saved.own()}) &&
         again_part_bytes(shape, load, foreign) - held <= gap_behind &&
         returning_part_bytes(shape, load, foreign) - held <= gap_behind;
}

}  // namespace

SavedPositions positions_to_save(const LayerBody& layer, const Dispatched& dispatched, const Chunk& chunk,
                                 const StepPlan& plan) {
  if (!chunk.in_parts) return {dispatched.positions_here};
  const ChunkShape shape = layer.chunk_shape();
  const Arena& arena = layer.arena;
  ChunkLoad load = load_of(layer, dispatched);
  load.own_split = layer.result_rows.positions_in_runs();
  load.own_runs = std::ssize(layer.result_rows.runs());
  const ForeignLoad foreign = foreign_load(layer, dispatched, plan);
  const std::int64_t held = held_bytes(shape, load, 0);
  const std::int64_t gap = arena.largest_gap_bytes();
  // Borrowed weights are given back before then; they need not lie beside the gap.
  const std::int64_t backward_gap = arena.largest_gap_bytes_without({&layer.borrowed.buffer()});
  const std::int64_t available = std::min(
      {gap - (forward_bytes(shape, load, 0) - held), backward_gap - (own_part_bytes(shape, load, {}) - held),
       backward_gap - arena.claimed_step_bytes(), layer.schedule.most_held() - held});
  const std::int64_t foreign_available = backward_gap - (foreign_part_bytes(shape, load, foreign, 0) - held);
  return saved_in_parts(shape, load, foreign, available, foreign_available);
}

bool kept_fits(const LayerBody& layer, const SavedStep& step) {
  if (step.chunks.front().in_parts) return parts_fit(layer, step.kept.front(), step.plan);
  // Gradients arrive when the kept chunks are gone, but what they borrow is not.
  const ChunkShape shape = layer.chunk_shape();
  const bool all_kept = step.chunks.back().kept;
  const std::int64_t borrowing =
      borrowing_bytes(layer, step.plan, all_kept ? kBackward : again_passes(layer));
  const std::int64_t gap = layer.arena.largest_gap_bytes();
  std::int64_t gap_behind = gap;
  for (const KeptChunk& kept : step.kept) {
    const ChunkLoad load = load_of(layer, kept.dispatched);
    const std::int64_t saved = kept.saved.positions().all();
    const std::int64_t held = held_bytes(shape, load, saved);
    if (borrowing + backward_bytes(shape, load, saved) - held > gap) return false;
    gap_behind = std::max(gap_behind, layer.arena.largest_gap_bytes_without({&kept.saved.own()}));
  }
  const bool arrive = layer.transfer.awaits_gradients(step.plan, layer.placement);
  const std::int64_t arriving = arrive ? shape.gradient_bytes : 0;
  return borrowing + arriving <= gap_behind;
}

// Wherever gradients are of borrowed experts, they take no less than the weights did on their arrival.
std::int64_t borrowing_bytes(const LayerBody& layer, const StepPlan& plan, std::span<const Pass> passes) {
  const WeightTransfer& transfer = layer.transfer;
  return transfer.borrows(plan) * layer.borrowed.bytes_each(passes) +
         transfer.away_bytes(plan, layer.placement);
}

std::span<const Pass> again_passes(const LayerBody& layer) {
  if (layer.recompute == Recompute::whole) return kBackwardWhole;
  return kBackwardAgain;
}

}  // namespace evenkeel::internal
