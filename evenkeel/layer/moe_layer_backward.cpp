// The backward pass of a layer: first the chunks that were kept, then the rest, dispatched and computed
// again.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/layer/internal/borrowed_experts.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/internal/step_schedule.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/layer/saved_activations.h"

namespace evenkeel {

void MoeLayer::backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients) {
  abort_on_error([&] {
    clock_->start(true);
    require_backward(state, grad_output, gradients);
    ForwardState::Body& step = *state.body_;
    drop_what_has_no_room(step);
    backward_kept(step, grad_output, gradients);
    backward_rest(step, grad_output, gradients);
    return_what_was_borrowed();
    finish_step();
  });
}

ChunkLoad MoeLayer::load_of(const Dispatched& dispatched) const {
  ChunkLoad load;
  load.tokens = dispatched.tokens;
  load.assignments_kept = dispatched.peers()[comm_.rank().offset()].in_positions;
  load.assignments = load.assignments_kept + dispatched.positions_elsewhere;
  load.positions_here = dispatched.positions_here;
  load.rows_here = dispatched.rows_here;
  load.rows_received = dispatched.rows_here - dispatched.own_rows;
  load.rows_elsewhere = dispatched.rows_elsewhere;
  load.groups = static_cast<std::int64_t>(dispatched.groups().size());
  return load;
}

// What was kept is let go where its backward pass does not fit beside what other steps hold now, or for want
// of room for what the plan borrows.
void MoeLayer::drop_what_has_no_room(ForwardState::Body& step) {
  if (!arena_.is_bounded() || step.chunks.empty() || !step.chunks.front().kept) return;
  if (schedule_->fits_everywhere(kept_fits(step))) return;
  step.kept.clear();
  for (Chunk& chunk : step.chunks) chunk.kept = false;
}

bool MoeLayer::kept_fits(const ForwardState::Body& step) const {
  if (step.chunks.front().in_parts) return parts_fit(step.kept.front(), step.plan);
  // The rest is planned, and gradients arrive, when the kept chunks are gone, but what they borrow is not.
  const bool rest = !step.chunks.back().kept;
  const std::int64_t borrowing = borrowing_bytes(step.plan, rest ? again_passes() : internal::kBackward);
  const std::int64_t gap = arena_.largest_gap_bytes();
  std::int64_t gap_behind = gap;
  for (const ForwardState::Kept& kept : step.kept) {
    const ChunkLoad load = load_of(kept.dispatched);
    const std::int64_t saved = kept.saved.positions().all();
    const std::int64_t held = held_bytes(budget_.chunk, load, saved);
    if (borrowing + backward_bytes(budget_.chunk, load, saved) - held > gap) return false;
    gap_behind = std::max(gap_behind, arena_.largest_gap_bytes_without({&kept.saved.own()}));
  }
  const std::int64_t arriving =
      transfer_.awaits_gradients(step.plan, placement_) ? budget_.chunk.gradient_bytes : 0;
  const std::int64_t table = rest ? block_table_bytes(budget_.chunk, 1) : 0;
  return borrowing + std::max(arriving, table) <= gap_behind;
}

// Wherever gradients are of borrowed experts, they take no less than the weights did on their arrival.
std::int64_t MoeLayer::borrowing_bytes(const StepPlan& plan, std::span<const Pass> passes) const {
  return transfer_.borrows(plan) * borrowed_->bytes_each(passes) + transfer_.away_bytes(plan, placement_);
}

std::span<const Pass> MoeLayer::again_passes() const {
  if (recompute_ == Recompute::whole) return internal::kBackwardWhole;
  return internal::kBackwardAgain;
}

void MoeLayer::borrow_for_backward(const StepPlan& plan, std::span<const Pass> passes) {
  clock_->enter(Phase::transfer);
  borrowed_->fetch(plan, natives_->parts(), passes, transfer_);
  transfer_.open_gradients(plan, placement_);
  borrowing_ = true;
}

void MoeLayer::return_what_was_borrowed() {
  if (!borrowing_) return;
  clock_->leave_chunk(Phase::transfer);
  borrowed_->release();
  transfer_.return_gradients(owned_gradients_);
  transfer_.finish();
  borrowing_ = false;
}

MoeLayer::TokenRows MoeLayer::token_rows(const ForwardState::Body& step, std::int64_t first,
                                         std::int64_t tokens, ConstRows grad_output,
                                         const MoeGradients& gradients) const {
  const TopK part = step.top_k.part(first, tokens);
  return {
      part, row(step.hidden, first), row(grad_output, first), row(gradients.hidden, first),
      gradients.router_weights.subspan(static_cast<std::size_t>(first * shape_.top_k), part.weights.size())};
}

void MoeLayer::backward_kept(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients) {
  if (step.chunks.empty() || !step.chunks.front().kept) return;
  if (step.kept.size() > 1 && overlaps(true)) return backward_kept_overlapped(step, grad_output, gradients);
  const bool in_parts = step.chunks.front().in_parts;
  if (!in_parts)
    borrow_for_backward(step.plan, step.chunks.back().kept ? internal::kBackward : again_passes());
  for (; !step.kept.empty(); step.kept.pop_back()) {
    ForwardState::Kept& kept = step.kept.back();
    clock_->enter_chunk(Phase::dispatch);
    const TokenRows tokens =
        token_rows(step, kept.first_token, kept.dispatched.tokens, grad_output, gradients);
    if (in_parts)
      backward_in_parts(kept, step.plan, tokens, gradients);
    else
      backward_chunk(kept.dispatched, std::move(kept.saved), tokens, gradients);
  }
}

// The tokens behind those that were kept are dispatched again, in chunks for which there is room now.
void MoeLayer::backward_rest(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients) {
  const auto rest_begin = std::ranges::find_if(step.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (rest_begin == step.chunks.end()) return;
  clock_->leave_chunk(Phase::plan);
  const std::int64_t units = schedule_->units();
  const std::int64_t before = rest_begin->first_token(step.top_k.tokens, units);
  const TopK rest = step.top_k.part(before, step.top_k.tokens - before);
  if (borrowing_ && !schedule_->plan_rest(rest, borrowing_bytes(step.plan, again_passes()), step.plan))
    return_what_was_borrowed();
  if (!borrowing_) {
    clock_->enter(Phase::plan);
    schedule_->plan_backward(rest, step.plan);
  }
  if (schedule_->chunks().size() > 1 && overlaps(false))
    return backward_rest_overlapped(step, before, grad_output, gradients);
  if (!borrowing_) borrow_for_backward(step.plan, again_passes());
  for (const Chunk& chunk : schedule_->chunks()) {
    clock_->enter_chunk(Phase::plan);
    const std::int64_t first = chunk.first_token(rest.tokens, units);
    const TokenRows tokens =
        token_rows(step, before + first, chunk.end_token(rest.tokens, units) - first, grad_output, gradients);
    schedule_->announce(tokens.top_k);
    const StepPlan& plan = schedule_->next_chunk(step.plan);
    clock_->enter(Phase::dispatch);
    Dispatched dispatched = exchange_.dispatch(tokens.hidden, tokens.top_k, schedule_->counts(), plan);
    backward_chunk(dispatched, save_again(dispatched, tokens.hidden, step.plan), tokens, gradients);
  }
}

// For `whole`, all that forward computed, as frameworks do that know nothing of the experts within.
SavedActivations MoeLayer::save_again(const Dispatched& dispatched, const void* hidden,
                                      const StepPlan& plan) {
  const bool whole = recompute_ == Recompute::whole;
  SavedActivations saved(arena_, dispatched, {whole ? dispatched.positions_here : 0}, budget_.chunk,
                         Lifetime::step);
  if (!whole) return saved;
  clock_->statistics().recomputed_assignments += dispatched.positions_here;
  open_results(dispatched, plan);
  run_experts(dispatched, hidden, saved, std::nullopt);
  return saved;
}

// What was saved comes first, and makes room for what is computed again.
void MoeLayer::backward_chunk(Dispatched& dispatched, SavedActivations saved, const TokenRows& tokens,
                              const MoeGradients& gradients) {
  clock_->enter(Phase::dispatch);
  Exchange::GradientRows incoming =
      exchange_.dispatch_gradients(dispatched, tokens.grad_output, tokens.top_k.weights);
  Exchange::ComputedGradients computed = exchange_.gradient_buffer(dispatched, tokens.grad_hidden);
  const GradientFlow flow{dispatched, tokens, incoming, computed, gradients};
  groups_->collect_saved(dispatched, saved, 0, dispatched.positions_here);
  run_experts_backward(Pass::backward, flow);
  saved.release_own();
  groups_->collect_again(dispatched, saved, 0, dispatched.positions_here);
  run_experts_backward(Pass::recompute, flow);
  send_gradients_home(dispatched, std::move(incoming), std::move(computed), tokens);
}

void MoeLayer::send_gradients_home(Dispatched& dispatched, Exchange::GradientRows incoming,
                                   Exchange::ComputedGradients computed, const TokenRows& tokens) {
  incoming = {};
  dispatched.release_rows();
  clock_->enter(Phase::combine);
  exchange_.combine_gradients(dispatched, std::move(computed), tokens.grad_hidden,
                              tokens.grad_router_weights);
}

void MoeLayer::run_experts_backward(Pass pass, const GradientFlow& flow) {
  if (pass == Pass::recompute) clock_->statistics().recomputed_assignments += groups_->positions();
  if (groups_->groups().empty()) return;
  clock_->enter(Phase::compute);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(pass), "products");
  attach_gradients(flow.gradients);
  ffn_->backward(batch_of(flow.dispatched), flow.dispatched.rows(flow.tokens.hidden),
                 flow.dispatched.rows(flow.tokens.grad_output, flow.incoming.rows),
                 flow.incoming.weights.as<const float>(), flow.computed.sums,
                 flow.computed.weights.as<float>(), workspace.bytes());
}

ExpertBatch MoeLayer::batch_of(const Dispatched& dispatched) const {
  return {groups_->groups(), dispatched.input_row(), dispatched.output_row()};
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void MoeLayer::attach_gradients(const MoeGradients& gradients) {
  for (ExpertId expert : natives())
    if (placement_.owner(expert) == comm_.rank())
      owned_gradients_[expert.offset()] =
          internal::parts_of(gradients.experts[natives_->index(expert)], shape_.expert);
  for (std::size_t g = 0; g < groups_->groups().size(); ++g) {
    const ExpertId expert = groups_->experts()[g];
    const auto away = std::ranges::find(transfer_.away(), expert, &WeightTransfer::Away::expert);
    groups_->groups()[g].gradients = internal::gradients_of(
        away == transfer_.away().end() ? owned_gradients_[expert.offset()] : away->parts);
  }
}

void MoeLayer::require_backward(const ForwardState& state, ConstRows grad_output,
                                const MoeGradients& gradients) const {
  if (!with_backward_) throw InvalidArgument("backward", "the layer was made without it", "with_backward");
  if (!state) throw InvalidArgument("state", "holds no forward step", "what forward returned, once");
  const TopK& top_k = state.body_->top_k;
  require_rows("grad_output", grad_output, top_k.tokens);
  require_rows("gradient of hidden", gradients.hidden, top_k.tokens);
  if (gradients.experts.size() != natives().size())
    throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.experts.size()),
                          fmt::format("of the {} at home on this rank", natives().size()));
  if (gradients.router_weights.size() != top_k.weights.size())
    throw InvalidArgument("gradient of router weights",
                          fmt::format("{} numbers", gradients.router_weights.size()),
                          fmt::format("{}, one for each of the top-k", top_k.weights.size()));
}

}  // namespace evenkeel
