#include "evenkeel/layer/cpu/internal/backward_pass.h"

#include <algorithm>
#include <utility>

#include "evenkeel/layer/cpu/internal/experts_forward.h"
#include "evenkeel/layer/cpu/internal/kept_fits.h"

namespace evenkeel::internal {

void BackwardPass::open() {
  attach_owned_gradients();
  drop_what_does_not_fit();
  if (step_.kept.empty()) return;
  const bool all_kept = step_.decision.chunks.back().kept;
  borrow(all_kept ? kBackward : again_passes(layer_));
}

void BackwardPass::borrow(std::span<const Pass> passes) {
  layer_.clock.enter(Phase::transfer);
  layer_.borrowed.fetch(step_.decision.plan, layer_.natives.parts(), passes, layer_.transfer);
  layer_.transfer.open_gradients(step_.decision.plan, layer_.parts.placement);
  borrowing_ = true;
}

// Borrowed weights go, and their gradients travel to their owners.
void BackwardPass::return_gradients() {
  if (!borrowing_) return;
  layer_.clock.leave_chunk(Phase::transfer);
  layer_.borrowed.release();
  layer_.transfer.return_gradients(layer_.buffers.owned_gradients);
  layer_.transfer.finish();
  borrowing_ = false;
}

// Of the rank's own experts: gradients that other ranks compute and send home go there too.
void BackwardPass::attach_owned_gradients() {
  for (ExpertId expert : layer_.parts.natives())
    if (layer_.parts.owns(expert))
      layer_.buffers.owned_gradients[expert.offset()] =
          parts_of(gradients_.experts[layer_.natives.index(expert)], layer_.parts.shape.expert);
}

// Kept chunks are dropped where their backward pass does not fit beside what other steps hold now, or where
// there is no memory for what the plan borrows.
void BackwardPass::drop_what_does_not_fit() {
  if (!layer_.parts.arena.is_bounded() || step_.kept.empty()) return;
  if (layer_.schedule.fits_everywhere(kept_fits(layer_, step_))) return;
  step_.kept.clear();
  for (Chunk& chunk : step_.decision.chunks) chunk.kept = false;
}

bool BackwardPass::next_chunk() {
  if (!step_.kept.empty()) {
    KeptChunk& kept = step_.kept.back();
    in_flight_.emplace(tokens_of(kept.first_token, kept.dispatched.tokens), std::move(kept.dispatched),
                       std::move(kept.saved));
    step_.kept.pop_back();
    return true;
  }
  if (!rest_is_planned_ && !plan_rest()) return false;
  if (rest_chunks_begun_ == step_.decision.chunks.size()) return false;
  ++rest_chunks_begun_;
  return true;
}

// The tokens behind those that were kept go in chunks for which there is memory now. False if there are none.
bool BackwardPass::plan_rest() {
  const auto begin = std::ranges::find(step_.decision.chunks, false, &Chunk::kept);
  if (begin == step_.decision.chunks.end()) return false;
  rest_begin_ = begin->first_token(step_.top_k.tokens, layer_.schedule.units());
  plan_rest_again(step_.top_k.part(rest_begin_, step_.top_k.tokens - rest_begin_));
  if (!borrowing_) borrow(again_passes(layer_));
  rest_is_planned_ = true;
  return true;
}

// Under the plan for which weights are borrowed already, if it fits.
void BackwardPass::plan_rest_again(const TopK& rest) {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.leave_chunk(Phase::plan);
  const std::int64_t borrowed =
      borrowing_ ? borrowing_bytes(layer_, step_.decision.plan, again_passes(layer_)) : 0;
  if (!borrowing_ || !schedule.decide_rest(rest, borrowed, step_.decision)) {
    return_gradients();
    layer_.clock.enter(Phase::plan);
    schedule.decide_backward(rest, step_.decision);
  }
}

// The gradients of the chunk's results arrive, and what is not there of its rows.
void BackwardPass::dispatch() {
  if (rest_is_planned_)
    dispatch_again();
  else
    layer_.clock.enter_chunk(Phase::dispatch);
  ChunkInFlight& now = *in_flight_;
  now.incoming =
      layer_.exchange.dispatch_gradients(now.dispatched, now.tokens.grad_output, now.tokens.top_k.weights);
  now.computed = layer_.exchange.gradient_buffer(now.dispatched, now.tokens.grad_hidden);
}

void BackwardPass::dispatch_again() {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.enter_chunk(Phase::plan);
  const Chunk& chunk = step_.decision.chunks[rest_chunks_begun_ - 1];
  const std::int64_t rest = step_.top_k.tokens - rest_begin_;
  const std::int64_t first = chunk.first_token(rest, schedule.units());
  ChunkInFlight& now =
      in_flight_.emplace(tokens_of(rest_begin_ + first, chunk.end_token(rest, schedule.units()) - first));
  const StepPlan& plan = schedule.plan_chunk(now.tokens.top_k, step_.decision);
  layer_.clock.enter(Phase::dispatch);
  now.dispatched = layer_.exchange.dispatch(now.tokens.hidden, now.tokens.top_k, schedule.counts(), plan);
  if (layer_.recompute() == Recompute::whole) compute_forward();
}

// All that forward computed, as frameworks do that know nothing of the experts within.
void BackwardPass::compute_forward() {
  ChunkInFlight& now = *in_flight_;
  now.saved = {layer_.parts.arena, now.dispatched, layer_.budget.chunk, Lifetime::step};
  layer_.clock.statistics().recomputed_assignments += now.dispatched.positions_here;
  ExpertsForward experts(layer_, step_.decision, now.dispatched, now.tokens.hidden, now.saved);
  experts.compute_waiting();
  layer_.clock.enter(Phase::combine);
  experts.compute_rest();
  layer_.clock.enter(Phase::dispatch);
}

void BackwardPass::run_experts() {
  ChunkInFlight& now = *in_flight_;
  layer_.buffers.groups.collect_backward(now.dispatched, now.saved);
  const std::span<ExpertGroup> groups = layer_.buffers.groups.groups();
  const bool again = !now.saved.any();
  if (again) layer_.clock.statistics().recomputed_assignments += now.dispatched.positions_here;
  if (groups.empty()) return;
  layer_.clock.enter(Phase::compute);
  const Workspaces& bytes = step_.decision.workspace;
  const Buffer workspace = layer_.parts.arena.allocate(again ? bytes.recompute : bytes.backward, "products");
  attach_gradients(groups);
  layer_.ffn->backward(
      {groups, now.dispatched.input_row(), now.dispatched.output_row()},
      now.dispatched.rows(now.tokens.hidden), now.dispatched.rows(now.tokens.grad_output, now.incoming.rows),
      now.incoming.router.values, now.computed.sums, now.incoming.router.gradients, workspace.bytes());
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void BackwardPass::attach_gradients(std::span<ExpertGroup> groups) {
  const auto away = layer_.transfer.away();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ExpertId expert = layer_.buffers.groups.experts()[g];
    const auto found = std::ranges::find(away, expert, &WeightTransfer::Away::expert);
    groups[g].gradients =
        gradients_of(found == away.end() ? layer_.buffers.owned_gradients[expert.offset()] : found->parts);
  }
}

void BackwardPass::combine() {
  ChunkInFlight& now = *in_flight_;
  now.saved.release();
  now.incoming.rows.release();
  now.dispatched.release_rows();
  layer_.clock.enter(Phase::combine);
  layer_.exchange.combine_gradients(now.dispatched, now.computed, now.incoming.router, now.tokens.grad_hidden,
                                    now.tokens.grad_router_weights);
  in_flight_.reset();
}

BackwardPass::ChunkTokens BackwardPass::tokens_of(std::int64_t first, std::int64_t count) const {
  const TopK part = step_.top_k.part(first, count);
  return {part, layer_.row(step_.hidden, first), layer_.row(grad_output_, first),
          layer_.row(gradients_.hidden, first),
          gradients_.router_weights.subspan(static_cast<std::size_t>(first * part.k), part.weights.size())};
}

}  // namespace evenkeel::internal
