#include "evenkeel/layer/internal/forward_pass.h"

#include <algorithm>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/layer/internal/experts_forward.h"

namespace evenkeel::internal {

void ForwardPass::run() {
  agree();
  layer_.borrow_for_forward(step_.plan);
  for (const Chunk& chunk : step_.chunks) run_chunk(chunk);
  layer_.give_back_in_forward();
  layer_.finish_step();
}

// On the step: its plan and its chunks.
void ForwardPass::agree() {
  StepSchedule& schedule = layer_.schedule;
  schedule.plan_forward(top_k_, *layer_.planner, step_.plan);
  layer_.clock.statistics().planning_seconds = schedule.planning_seconds();
  layer_.workspace = step_.workspace = schedule.workspace();
  step_.chunks.reserve(static_cast<std::size_t>(schedule.units()));
  step_.chunks.assign(schedule.chunks().begin(), schedule.chunks().end());
  step_.kept.reserve(kStepBlocks);
  step_.hidden = hidden_;
  if (layer_.with_backward) save_choices();
}

void ForwardPass::save_choices() {
  const auto bytes = static_cast<std::int64_t>(top_k_.experts.size_bytes());
  std::byte* at = nullptr;
  if (layer_.arena.is_bounded()) {
    at = step_.choices = layer_.pool.take_choices();
    if (at == nullptr)
      throw InvalidArgument("forward", "more states are alive than the layer was made for",
                            "a larger states_in_flight, or backward before the next forward");
  } else {
    step_.own_choices = layer_.arena.allocate(2 * bytes, "choices", Lifetime::held);
    at = step_.own_choices.data();
  }
  const std::span experts(reinterpret_cast<std::int32_t*>(at), top_k_.experts.size());
  const std::span weights(reinterpret_cast<float*>(at + bytes), top_k_.weights.size());
  std::ranges::copy(top_k_.experts, experts.begin());
  std::ranges::copy(top_k_.weights, weights.begin());
  step_.top_k = {top_k_.tokens, top_k_.k, experts, weights};
}

void ForwardPass::run_chunk(const Chunk& chunk) {
  StepSchedule& schedule = layer_.schedule;
  layer_.clock.enter_chunk(Phase::plan);
  const std::int64_t first = chunk.first_token(top_k_.tokens, schedule.units());
  const TopK part = top_k_.part(first, chunk.end_token(top_k_.tokens, schedule.units()) - first);
  const void* const hidden = layer_.row(hidden_, first);
  const StepPlan& plan = schedule.plan_chunk(part, step_.plan);

  layer_.clock.enter(Phase::dispatch);
  const Lifetime lifetime = chunk.kept ? Lifetime::held : Lifetime::step;
  Dispatched dispatched = layer_.exchange.dispatch(hidden, part, schedule.counts(), plan, lifetime);
  layer_.clock.statistics().assignments += dispatched.positions_here;
  open_results(layer_, dispatched, step_.plan);
  SavedActivations saved;
  if (chunk.kept) saved = {layer_.arena, dispatched, layer_.budget.chunk, Lifetime::held};
  run_experts(layer_, dispatched, hidden, saved, ResultSums{part.weights, layer_.row(output_, first)});
  if (chunk.kept) step_.kept.push_back({first, std::move(dispatched), std::move(saved)});
}

}  // namespace evenkeel::internal
