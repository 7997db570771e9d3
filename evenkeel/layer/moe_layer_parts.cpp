// A kept chunk whose backward pass is in parts, for want of room; memory/chunk_bytes.h says what is held
// when.
#include <algorithm>
#include <utility>

#include "evenkeel/layer/internal/borrowed_experts.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/layer/saved_activations.h"

namespace evenkeel {

// As many as leave the forward pass and the parts of the backward pass their room.
SavedPositions MoeLayer::positions_to_save(const Dispatched& dispatched, const Chunk& chunk,
                                           const StepPlan& plan) const {
  if (!chunk.in_parts) return {dispatched.positions_here};
  ChunkLoad load = load_of(dispatched);
  load.own_split = result_rows_.positions_in_runs();
  load.own_runs = std::ssize(result_rows_.runs());
  const ForeignLoad foreign = foreign_load(dispatched, plan);
  const std::int64_t held = held_bytes(budget_.chunk, load, 0);
  const std::int64_t gap = arena_.largest_gap_bytes();
  // What is borrowed is given back before then; it need not lie beside the gap.
  const std::int64_t backward_gap = arena_.largest_gap_bytes_without({&borrowed_->buffer()});
  const std::int64_t room =
      std::min({gap - (forward_bytes(budget_.chunk, load, 0) - held),
                backward_gap - (own_part_bytes(budget_.chunk, load, {}) - held),
                backward_gap - arena_.claimed_step_bytes(), arena_.spare_state_bytes() - held});
  const std::int64_t foreign_room =
      backward_gap - (foreign_part_bytes(budget_.chunk, load, foreign, 0) - held);
  return saved_in_parts(budget_.chunk, load, foreign, room, foreign_room);
}

// Whether each part has its room, when what was saved for the parts before it is gone.
bool MoeLayer::parts_fit(const ForwardState::Kept& kept, const StepPlan& plan) const {
  const ChunkShape& shape = budget_.chunk;
  const ChunkLoad load = load_of(kept.dispatched);
  const ForeignLoad foreign = foreign_load(kept.dispatched, plan);
  const SavedActivations& saved = kept.saved;
  const std::int64_t held = held_bytes(shape, load, 0);
  const std::int64_t gap_behind = arena_.largest_gap_bytes_without({&saved.own(), &saved.foreign()});
  return own_part_bytes(shape, load, {}) - held <= arena_.largest_gap_bytes() &&
         foreign_part_bytes(shape, load, foreign, 0) - held <=
             arena_.largest_gap_bytes_without({&saved.own()}) &&
         again_part_bytes(shape, load, foreign) - held <= gap_behind &&
         returning_bytes(shape, foreign) <= gap_behind;
}

// Of an expert with several homes the gradient is the first one's; which positions are of such experts is not
// told apart.
ForeignLoad MoeLayer::foreign_load(const Dispatched& dispatched, const StepPlan& plan) const {
  const std::int64_t away = transfer_.away_bytes(plan, placement_) / budget_.chunk.gradient_bytes;
  const bool single = placement_.has_single_homes();
  return {transfer_.borrows(plan), away, single ? dispatched.positions_borrowed : dispatched.positions_here,
          transfer_.awaits_gradients(plan, placement_)};
}

// Where some rank has something to compute again, all take part in fetching what that wants.
void MoeLayer::backward_in_parts(ForwardState::Kept& kept, const StepPlan& plan, const TokenRows& tokens,
                                 const MoeGradients& gradients) {
  Dispatched& dispatched = kept.dispatched;
  Exchange::GradientRows incoming =
      exchange_.dispatch_gradients(dispatched, tokens.grad_output, tokens.top_k.weights);
  Exchange::ComputedGradients computed = exchange_.gradient_buffer(dispatched, tokens.grad_hidden);
  const GradientFlow flow{dispatched, tokens, incoming, computed, gradients};
  backward_own_part(kept.saved, flow);
  backward_foreign_part(kept.saved, plan, flow);
  if (kept.chunk.recomputed > 0) {
    clock_->enter(Phase::transfer);
    borrowed_->fetch(plan, natives_->parts(), internal::kBackwardAgain, transfer_);
    groups_->collect_again(dispatched, kept.saved, 0, dispatched.positions_here);
    run_experts_backward(Pass::recompute, flow);
    borrowed_->release();
  }
  send_gradients_home(dispatched, std::move(incoming), std::move(computed), tokens);
}

void MoeLayer::backward_own_part(SavedActivations& saved, const GradientFlow& flow) {
  groups_->collect_saved(flow.dispatched, saved, saved.own_begin(), flow.dispatched.positions_here);
  run_experts_backward(Pass::backward, flow);
  saved.release_own();
}

void MoeLayer::backward_foreign_part(SavedActivations& saved, const StepPlan& plan,
                                     const GradientFlow& flow) {
  clock_->enter(Phase::transfer);
  borrowed_->fetch(plan, natives_->parts(), internal::kBackward, transfer_, Lifetime::held);
  transfer_.open_all_but_gate_up(plan, placement_);
  borrowing_ = true;
  groups_->collect_saved(flow.dispatched, saved, saved.foreign_begin(), saved.own_begin());
  run_experts_backward(Pass::backward, flow);
  clock_->enter(Phase::transfer);
  borrowed_->release();
  transfer_.open_gate_up();
  add_gate_up_gradients(flow);
  saved.release_foreign();
}

// Of the groups of the last pass, what it left for want of room.
void MoeLayer::add_gate_up_gradients(const GradientFlow& flow) {
  groups_->keep_without_gate_up();
  if (groups_->groups().empty()) return;
  clock_->enter(Phase::compute);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(Pass::backward), "products");
  attach_gradients(flow.gradients);
  ffn_->add_gate_up_gradients(batch_of(flow.dispatched), flow.dispatched.rows(flow.tokens.hidden),
                              workspace.bytes());
}

}  // namespace evenkeel
