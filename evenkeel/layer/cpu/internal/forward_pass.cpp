#include "evenkeel/layer/cpu/internal/forward_pass.h"

#include <algorithm>
#include <span>
#include <utility>

namespace evenkeel::internal {

// On the step: its plan and its chunks.
void ForwardPass::agree() {
  StepSchedule& schedule = layer_.schedule;
  schedule.decide_forward(top_k_, *layer_.planner, step_.decision);
  layer_.clock.statistics().planning_seconds = schedule.planning_seconds();
  step_.kept.reserve(kStepBlocks);
  step_.hidden = hidden_;
  if (layer_.parts.options.with_backward) save_choices();
}

void ForwardPass::save_choices() {
  const auto bytes = static_cast<std::int64_t>(top_k_.experts.size_bytes());
  std::byte* at = step_.choices;
  if (at == nullptr) {
    step_.own_choices = layer_.parts.arena.allocate(chunk_buffers::choices(top_k_.k, top_k_.tokens),
                                                    "choices", Lifetime::held);
    at = step_.own_choices.data();
  }
  const std::span experts(reinterpret_cast<std::int32_t*>(at), top_k_.experts.size());
  const std::span weights(reinterpret_cast<float*>(at + bytes), top_k_.weights.size());
  std::ranges::copy(top_k_.experts, experts.begin());
  std::ranges::copy(top_k_.weights, weights.begin());
  step_.top_k = {top_k_.tokens, top_k_.k, experts, weights};
}

void ForwardPass::borrow() {
  layer_.clock.enter(Phase::transfer);
  layer_.borrowed.fetch(step_.decision.plan, layer_.natives.parts(), kForward, layer_.transfer);
}

void ForwardPass::give_back() {
  layer_.clock.leave_chunk(Phase::transfer);
  layer_.borrowed.release();
  layer_.transfer.finish();
}

bool ForwardPass::next_chunk() {
  if (chunks_begun_ == step_.decision.chunks.size()) return false;
  chunk_ = &step_.decision.chunks[chunks_begun_++];
  return true;
}

void ForwardPass::dispatch() {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.enter_chunk(Phase::plan);
  ChunkInFlight& now = in_flight_.emplace();
  now.first_token = chunk_->first_token(top_k_.tokens, schedule.units());
  now.top_k =
      top_k_.part(now.first_token, chunk_->end_token(top_k_.tokens, schedule.units()) - now.first_token);
  const StepPlan& plan = schedule.plan_chunk(now.top_k, step_.decision);

  layer_.clock.enter(Phase::dispatch);
  const Lifetime lifetime = chunk_->kept ? Lifetime::held : Lifetime::step;
  now.dispatched = layer_.exchange.dispatch(layer_.row(hidden_, now.first_token), now.top_k,
                                            schedule.counts(), plan, lifetime);
  layer_.clock.statistics().assignments += now.dispatched.positions_here;
}

void ForwardPass::run_experts() {
  ChunkInFlight& now = *in_flight_;
  if (chunk_->kept) now.saved = {layer_.parts.arena, now.dispatched, layer_.budget.chunk, Lifetime::held};
  now.experts.emplace(layer_, step_.decision, now.dispatched, layer_.row(hidden_, now.first_token),
                      now.saved);
  now.experts->compute_waiting();
}

void ForwardPass::combine() {
  ChunkInFlight& now = *in_flight_;
  layer_.clock.enter(Phase::combine);
  now.experts->compute_rest_and_sum(now.top_k.weights, layer_.row(output_, now.first_token));
  now.experts.reset();
  if (chunk_->kept) step_.kept.push_back({now.first_token, std::move(now.dispatched), std::move(now.saved)});
  in_flight_.reset();
}

}  // namespace evenkeel::internal
