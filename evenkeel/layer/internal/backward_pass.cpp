#include "evenkeel/layer/internal/backward_pass.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "evenkeel/layer/internal/chunk_backward.h"
#include "evenkeel/layer/internal/experts_forward.h"
#include "evenkeel/layer/internal/overlapped_backward.h"
#include "evenkeel/layer/internal/saved_limits.h"

namespace evenkeel::internal {

void BackwardPass::run() {
  layer_.workspace = step_.workspace;
  attach_owned_gradients(layer_, tensors_.gradients);
  drop_what_does_not_fit();
  run_kept();
  run_rest();
  layer_.give_back_in_backward();
  layer_.finish_step();
}

// Kept chunks are dropped where their backward pass does not fit beside what other steps hold now, or where
// there is no memory for what the plan borrows.
void BackwardPass::drop_what_does_not_fit() {
  if (!layer_.arena.is_bounded() || step_.chunks.empty() || !step_.chunks.front().kept) return;
  if (layer_.schedule.fits_everywhere(kept_fits(layer_, step_))) return;
  step_.kept.clear();
  for (Chunk& chunk : step_.chunks) chunk.kept = false;
}

void BackwardPass::run_kept() {
  if (step_.chunks.empty() || !step_.chunks.front().kept) return;
  const std::span<const Pass> passes = step_.chunks.back().kept ? kBackward : again_passes(layer_);
  if (step_.kept.size() > 1 && layer_.overlaps(true))
    return backward_kept_overlapped(layer_, step_, passes, tensors_);
  if (!step_.chunks.front().in_parts) layer_.borrow_for_backward(step_.plan, passes);
  for (; !step_.kept.empty(); step_.kept.pop_back()) run_kept_chunk(step_.kept.back());
}

void BackwardPass::run_kept_chunk(KeptChunk& kept) {
  layer_.clock.enter_chunk(Phase::dispatch);
  const TokenRows tokens = token_rows(layer_, step_, kept.first_token, kept.dispatched.tokens, tensors_);
  ChunkBackward chunk(layer_, kept.dispatched, tokens);
  if (kept.chunk.in_parts)
    chunk.run_in_parts(std::move(kept.saved), step_.plan, kept.chunk.recomputed > 0);
  else
    chunk.run(std::move(kept.saved));
}

// The tokens behind those that were kept are dispatched again, in chunks for which there is memory now.
void BackwardPass::run_rest() {
  const auto begin = std::ranges::find_if(step_.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (begin == step_.chunks.end()) return;
  const std::int64_t before = begin->first_token(step_.top_k.tokens, layer_.schedule.units());
  const TopK rest = step_.top_k.part(before, step_.top_k.tokens - before);
  plan_rest(rest);
  if (layer_.schedule.chunks().size() > 1 && layer_.overlaps(false))
    return backward_rest_overlapped(layer_, step_, before, tensors_);
  if (!layer_.borrowing) layer_.borrow_for_backward(step_.plan, again_passes(layer_));
  for (const Chunk& chunk : layer_.schedule.chunks()) run_again(chunk, before, rest.tokens);
}

// Under the plan for which weights are borrowed already, if it fits.
void BackwardPass::plan_rest(const TopK& rest) {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.leave_chunk(Phase::plan);
  const std::int64_t borrowed =
      layer_.borrowing ? borrowing_bytes(layer_, step_.plan, again_passes(layer_)) : 0;
  if (!layer_.borrowing || !schedule.plan_rest(rest, borrowed, step_.plan)) {
    layer_.give_back_in_backward();
    layer_.clock.enter(Phase::plan);
    schedule.plan_backward(rest, step_.plan);
  }
  layer_.workspace = schedule.workspace();
}

void BackwardPass::run_again(const Chunk& chunk, std::int64_t before, std::int64_t rest) {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.enter_chunk(Phase::plan);
  const std::int64_t first = chunk.first_token(rest, schedule.units());
  const std::int64_t count = chunk.end_token(rest, schedule.units()) - first;
  const TokenRows tokens = token_rows(layer_, step_, before + first, count, tensors_);
  schedule.announce(tokens.top_k);
  const StepPlan& plan = schedule.next_chunk(step_.plan);
  layer_.clock.enter(Phase::dispatch);
  Dispatched dispatched = layer_.exchange.dispatch(tokens.hidden, tokens.top_k, schedule.counts(), plan);
  SavedActivations saved = save_again(dispatched, tokens.hidden);
  layer_.clock.enter(Phase::dispatch);
  ChunkBackward(layer_, dispatched, tokens).run(std::move(saved));
}

// For `whole`, all that forward computed, as frameworks do that know nothing of the experts within.
SavedActivations BackwardPass::save_again(const Dispatched& dispatched, const void* hidden) {
  const bool whole = layer_.recompute == Recompute::whole;
  SavedActivations saved(layer_.arena, dispatched, {whole ? dispatched.positions_here : 0},
                         layer_.budget.chunk, Lifetime::step);
  if (!whole) return saved;
  layer_.clock.statistics().recomputed_assignments += dispatched.positions_here;
  open_results(layer_, dispatched, step_.plan);
  run_experts(layer_, dispatched, hidden, saved, std::nullopt);
  return saved;
}

}  // namespace evenkeel::internal
