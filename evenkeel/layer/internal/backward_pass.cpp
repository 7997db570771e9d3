#include "evenkeel/layer/internal/backward_pass.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "evenkeel/layer/internal/experts_forward.h"
#include "evenkeel/layer/internal/kept_fits.h"

namespace evenkeel::internal {

void BackwardPass::run() {
  layer_.workspace = step_.workspace;
  attach_owned_gradients();
  drop_what_does_not_fit();
  run_kept();
  run_rest();
  layer_.give_back_in_backward();
  layer_.finish_step();
}

// Of the rank's own experts: gradients that other ranks compute and send home go there too.
void BackwardPass::attach_owned_gradients() {
  for (ExpertId expert : layer_.natives_here())
    if (layer_.placement.owner(expert) == layer_.comm.rank())
      layer_.owned_gradients[expert.offset()] =
          parts_of(gradients_.experts[layer_.natives.index(expert)], layer_.shape.expert);
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
  layer_.borrow_for_backward(step_.plan, step_.chunks.back().kept ? kBackward : again_passes(layer_));
  for (; !step_.kept.empty(); step_.kept.pop_back()) {
    KeptChunk& kept = step_.kept.back();
    layer_.clock.enter_chunk(Phase::dispatch);
    run_chunk(kept.dispatched, std::move(kept.saved), tokens_of(kept.first_token, kept.dispatched.tokens));
  }
}

// The tokens behind those that were kept are dispatched again, in chunks for which there is memory now.
void BackwardPass::run_rest() {
  const auto begin = std::ranges::find(step_.chunks, false, &Chunk::kept);
  if (begin == step_.chunks.end()) return;
  const std::int64_t before = begin->first_token(step_.top_k.tokens, layer_.schedule.units());
  const TopK rest = step_.top_k.part(before, step_.top_k.tokens - before);
  plan_rest(rest);
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
  const ChunkTokens tokens = tokens_of(before + first, count);
  const StepPlan& plan = schedule.plan_chunk(tokens.top_k, step_.plan);
  layer_.clock.enter(Phase::dispatch);
  Dispatched dispatched = layer_.exchange.dispatch(tokens.hidden, tokens.top_k, schedule.counts(), plan);
  SavedActivations saved;
  if (layer_.recompute == Recompute::whole) saved = compute_forward(dispatched, tokens.hidden);
  layer_.clock.enter(Phase::dispatch);
  run_chunk(dispatched, std::move(saved), tokens);
}

// All that forward computed, as frameworks do that know nothing of the experts within.
SavedActivations BackwardPass::compute_forward(const Dispatched& dispatched, const void* hidden) {
  SavedActivations saved(layer_.arena, dispatched, layer_.budget.chunk, Lifetime::step);
  layer_.clock.statistics().recomputed_assignments += dispatched.positions_here;
  open_results(layer_, dispatched, step_.plan);
  internal::run_experts(layer_, dispatched, hidden, saved, std::nullopt);
  return saved;
}

// Gradients of the chunk's results arrive, the experts' products are made, gradients of its rows go home.
void BackwardPass::run_chunk(Dispatched& dispatched, SavedActivations saved, const ChunkTokens& tokens) {
  Exchange::IncomingGradients incoming =
      layer_.exchange.dispatch_gradients(dispatched, tokens.grad_output, tokens.top_k.weights);
  const Exchange::RowGradients computed = layer_.exchange.gradient_buffer(dispatched, tokens.grad_hidden);
  run_experts(dispatched, saved, tokens, incoming, computed);
  saved.release();
  incoming.rows.release();
  dispatched.release_rows();
  layer_.clock.enter(Phase::combine);
  layer_.exchange.combine_gradients(dispatched, computed, incoming.router, tokens.grad_hidden,
                                    tokens.grad_router_weights);
}

void BackwardPass::run_experts(const Dispatched& dispatched, const SavedActivations& saved,
                               const ChunkTokens& tokens, const Exchange::IncomingGradients& incoming,
                               const Exchange::RowGradients& computed) {
  layer_.groups.collect_backward(dispatched, saved);
  const std::span<ExpertGroup> groups = layer_.groups.groups();
  if (!saved.any()) layer_.clock.statistics().recomputed_assignments += dispatched.positions_here;
  if (groups.empty()) return;
  layer_.clock.enter(Phase::compute);
  const Workspaces& bytes = layer_.workspace;
  const Buffer workspace = layer_.arena.allocate(saved.any() ? bytes.backward : bytes.recompute, "products");
  attach_gradients();
  layer_.ffn->backward({groups, dispatched.input_row(), dispatched.output_row()},
                       dispatched.rows(tokens.hidden), dispatched.rows(tokens.grad_output, incoming.rows),
                       incoming.router.values, computed.sums, incoming.router.gradients, workspace.bytes());
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void BackwardPass::attach_gradients() {
  const auto away = layer_.transfer.away();
  for (std::size_t g = 0; g < layer_.groups.groups().size(); ++g) {
    const ExpertId expert = layer_.groups.experts()[g];
    const auto found = std::ranges::find(away, expert, &WeightTransfer::Away::expert);
    layer_.groups.groups()[g].gradients =
        gradients_of(found == away.end() ? layer_.owned_gradients[expert.offset()] : found->parts);
  }
}

BackwardPass::ChunkTokens BackwardPass::tokens_of(std::int64_t first, std::int64_t count) const {
  const TopK part = step_.top_k.part(first, count);
  return {part, layer_.row(step_.hidden, first), layer_.row(grad_output_, first),
          layer_.row(gradients_.hidden, first),
          gradients_.router_weights.subspan(static_cast<std::size_t>(first * part.k), part.weights.size())};
}

}  // namespace evenkeel::internal
