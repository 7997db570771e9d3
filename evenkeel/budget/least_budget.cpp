#include "evenkeel/budget/least_budget.h"

#include <algorithm>

#include "evenkeel/budget/block_table.h"

namespace evenkeel {

namespace {

// A step can always run as plain EP, which may split an expert over its copies.
ChunkLoad largest_at_home(const BudgetShape& shape, std::int64_t tokens) {
  return largest_load(shape.chunk, tokens, {shape.home_experts, shape.copies > 0});
}

}  // namespace

std::int64_t block_table_bytes(const ChunkShape& shape, int blocks) {
  const std::int64_t bytes = BlockTable::count(shape.num_ranks, shape.num_experts, blocks) * 4;
  return whole_lines(bytes);
}

std::int64_t least_step_bytes(const BudgetShape& shape) {
  // Under these rules a step is not cut into chunks: it must fit whole.
  const bool whole = shape.recompute == Recompute::none || shape.recompute == Recompute::whole;
  const ChunkLoad load = largest_at_home(shape, whole ? shape.max_tokens : 1);
  const bool kept = whole && shape.chunk.with_backward;
  const std::int64_t saved = kept ? load.positions_here : 0;
  std::int64_t step = forward_bytes(shape.chunk, load, saved);
  if (shape.chunk.with_backward) {
    const std::int64_t gradients = shape.copies * shape.chunk.gradient_bytes;
    step = std::max(step, gradients + std::max(kept ? backward_bytes(shape.chunk, load, saved)
                                                    : recompute_bytes(shape.chunk, load),
                                               shape.copies > 0 ? shape.chunk.gradient_bytes : 0));
  }
  return step;
}

std::int64_t least_state_bytes(const BudgetShape& shape) {
  if (!shape.chunk.with_backward) return 0;
  std::int64_t state = state_bytes(shape.chunk, shape.max_tokens);
  if (shape.recompute == Recompute::none) {
    const ChunkLoad largest = largest_at_home(shape, shape.max_tokens);
    state += held_bytes(shape.chunk, largest, largest.positions_here);
  }
  return state * shape.states_in_flight;
}

std::int64_t least_budget(const BudgetShape& shape) {
  return least_state_bytes(shape) + least_step_bytes(shape);
}

}  // namespace evenkeel
