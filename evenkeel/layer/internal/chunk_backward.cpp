#include "evenkeel/layer/internal/chunk_backward.h"

#include <utility>

#include "evenkeel/base/check.h"

namespace evenkeel::internal {

// Saved positions come first, and make memory for those that are computed again.
void ChunkBackward::run(SavedActivations saved) {
  layer_.groups.collect_saved(dispatched_, saved, 0, dispatched_.positions_here);
  run_experts_backward(layer_, Pass::backward, flow());
  saved.release_own();
  layer_.groups.collect_again(dispatched_, saved, 0, dispatched_.positions_here);
  run_experts_backward(layer_, Pass::recompute, flow());
  send_gradients_home();
}

// Where some rank has something to compute again, all take part in fetching what that wants.
void ChunkBackward::run_in_parts(SavedActivations saved, const StepPlan& plan, bool some_again) {
  EVENKEEL_CHECK(some_again || saved.positions().all() == dispatched_.positions_here);
  run_own_part(saved);
  run_foreign_part(saved, plan);
  if (some_again) run_again_part(saved, plan);
  send_gradients_home();
}

void ChunkBackward::run_own_part(SavedActivations& saved) {
  layer_.groups.collect_saved(dispatched_, saved, saved.own_begin(), dispatched_.positions_here);
  run_experts_backward(layer_, Pass::backward, flow());
  saved.release_own();
}

void ChunkBackward::run_foreign_part(SavedActivations& saved, const StepPlan& plan) {
  layer_.clock.enter(Phase::transfer);
  layer_.borrowed.fetch(plan, layer_.natives.parts(), kBackward, layer_.transfer, Lifetime::held);
  layer_.transfer.open_all_but_gate_up(plan, layer_.placement);
  layer_.borrowing = true;
  layer_.groups.collect_saved(dispatched_, saved, saved.foreign_begin(), saved.own_begin());
  run_experts_backward(layer_, Pass::backward, flow());
  layer_.clock.enter(Phase::transfer);
  layer_.borrowed.release();
  layer_.transfer.open_gate_up();
  add_gate_up_gradients(layer_, flow());
  saved.release_foreign();
}

void ChunkBackward::run_again_part(const SavedActivations& saved, const StepPlan& plan) {
  layer_.clock.enter(Phase::transfer);
  layer_.borrowed.fetch(plan, layer_.natives.parts(), kBackwardAgain, layer_.transfer);
  layer_.groups.collect_again(dispatched_, saved, 0, dispatched_.positions_here);
  run_experts_backward(layer_, Pass::recompute, flow());
  layer_.borrowed.release();
}

void ChunkBackward::send_gradients_home() {
  incoming_.rows.release();
  dispatched_.release_rows();
  layer_.clock.enter(Phase::combine);
  layer_.exchange.combine_gradients(dispatched_, computed_, incoming_.router, tokens_.grad_hidden,
                                    tokens_.grad_router_weights);
}

}  // namespace evenkeel::internal
