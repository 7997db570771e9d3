// The backward pass of a layer on the CPU: first the chunks that forward kept, in reverse order; then the
// rest of the tokens, which are dispatched and computed again. layer/internal/step_sequence.h has the order
// of the calls.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/experts_forward.h"
#include "evenkeel/layer/internal/expert_parts.h"
#include "evenkeel/layer/internal/step_sequence.h"

namespace evenkeel::internal {

namespace {

class BackwardPass {
 public:
  // All arguments must outlive the pass.
  BackwardPass(CpuLayer& layer, SavedStep& step, ConstRows grad_output, const MoeGradients& gradients)
      : layer_(layer), step_(step), grad_output_(grad_output), gradients_(gradients) {}

  void open() {
    attach_owned_gradients();
    drop_what_does_not_fit();
    if (!step_.kept.empty()) borrow(passes_of_kept());
  }

  bool next_chunk() {
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

  // Receives the gradients of the chunk's results, and dispatches its rows again if they were not kept.
  void dispatch() {
    if (rest_is_planned_)
      redispatch();
    else
      layer_.clock.enter_chunk(Phase::dispatch);
    ChunkInFlight& now = *in_flight_;
    now.incoming =
        layer_.exchange.dispatch_gradients(now.dispatched, now.tokens.grad_output, now.tokens.top_k.weights);
    now.computed = layer_.exchange.gradient_buffer(now.dispatched, now.tokens.grad_hidden);
  }

  void run_experts() {
    ChunkInFlight& now = *in_flight_;
    const bool recompute = !now.saved.any();
    collect_groups(recompute);
    if (recompute) layer_.clock.statistics().recomputed_assignments += now.dispatched.positions_here;
    if (layer_.groups.empty()) return;
    layer_.clock.enter(Phase::compute);
    const Workspaces& bytes = step_.decision.workspace;
    const Buffer workspace =
        layer_.parts.arena.allocate(recompute ? bytes.recompute : bytes.backward, "products");
    layer_.ffn->backward({layer_.groups, now.dispatched.input_row(), now.dispatched.output_row()},
                         now.dispatched.rows(now.tokens.hidden),
                         now.dispatched.rows(now.tokens.grad_output, now.incoming.rows),
                         now.incoming.router.values, now.computed.sums, now.incoming.router.gradients,
                         workspace.bytes());
  }

  void combine() {
    ChunkInFlight& now = *in_flight_;
    now.saved.release();
    now.incoming.rows.release();
    now.dispatched.release_rows();
    layer_.clock.enter(Phase::combine);
    layer_.exchange.combine_gradients(now.dispatched, now.computed, now.incoming.router,
                                      now.tokens.grad_hidden, now.tokens.grad_router_weights);
    in_flight_.reset();
  }

  // Frees borrowed weights and sends their gradients to the owners.
  void return_gradients() {
    if (!borrowing_) return;
    layer_.clock.leave_chunk(Phase::transfer);
    layer_.experts.give_back();
    layer_.transfer.return_gradients(layer_.owned_gradients);
    layer_.transfer.finish();
    borrowing_ = false;
  }

 private:
  // The parts of the caller's tensors that belong to a chunk's tokens.
  struct ChunkTokens {
    TopK top_k;
    const void* hidden = nullptr;
    const void* grad_output = nullptr;
    void* grad_hidden = nullptr;
    std::span<float> grad_router_weights;
  };
  // The chunk being processed. Its buffers are freed in reverse order of allocation.
  struct ChunkInFlight {
    ChunkTokens tokens;
    Dispatched dispatched;
    SavedActivations saved;
    Exchange::IncomingGradients incoming;
    Exchange::RowGradients computed;
  };

  // Points the layer's owned gradients at this step's tensors; gradients from other ranks are added there.
  void attach_owned_gradients() {
    const auto natives = layer_.parts.natives();
    for (std::size_t i = 0; i < natives.size(); ++i)
      if (layer_.parts.owns(natives[i]))
        layer_.owned_gradients[natives[i].offset()] =
            parts_of(gradients_.experts[i], layer_.parts.shape.expert);
  }

  // Drops the kept chunks if their backward pass does not fit beside what other steps hold now, or if there
  // is no memory for the weights that the plan borrows.
  void drop_what_does_not_fit() {
    if (!layer_.parts.arena.is_bounded() || step_.kept.empty()) return;
    if (layer_.schedule.fits_everywhere(kept_fits())) return;
    step_.kept.clear();
    for (Chunk& chunk : step_.decision.chunks) chunk.kept = false;
  }

  // Whether the arena has the bytes that backward of the kept chunks needs; budget/chunk_bytes.h says what is
  // held at which time. Gradients from other ranks arrive after the kept chunks are freed; borrowed weights
  // and their gradients count as still held then.
  bool kept_fits() const {
    ChunkShape shape = layer_.budget.chunk;
    shape.workspace = step_.decision.workspace;
    const std::int64_t borrowing = borrowing_bytes(passes_of_kept());
    const std::int64_t gap = layer_.parts.arena.largest_gap_bytes();
    std::int64_t gap_behind = gap;
    for (const KeptChunk& kept : step_.kept) {
      const ChunkLoad load = kept.dispatched.load();
      const std::int64_t held = held_bytes(shape, load, load.positions_here);
      if (borrowing + backward_bytes(shape, load, load.positions_here) - held > gap) return false;
      gap_behind = std::max(gap_behind, layer_.parts.arena.largest_gap_bytes_without(kept.saved.buffer()));
    }
    const bool arrive = layer_.transfer.awaits_gradients(step_.plan(), layer_.parts.placement);
    return borrowing + (arrive ? shape.gradient_bytes : 0) <= gap_behind;
  }

  // Bytes of borrowed weights and of the gradients to send away. Weights need no extra bytes while they
  // arrive, since the gradients are allocated later and take at least as much.
  std::int64_t borrowing_bytes(std::span<const Pass> passes) const {
    const WeightTransfer& transfer = layer_.transfer;
    return transfer.borrows(step_.plan()) * layer_.experts.bytes_each(passes) +
           transfer.foreign_gradient_bytes(step_.plan(), layer_.parts.placement);
  }

  // The passes for which weights are borrowed if something is recomputed.
  std::span<const Pass> recompute_passes() const {
    if (layer_.recompute() == Recompute::whole) return kBackwardWhole;
    return kBackwardRecompute;
  }
  std::span<const Pass> passes_of_kept() const {
    const bool all_kept = step_.decision.chunks.back().kept;
    return all_kept ? kBackward : recompute_passes();
  }

  void borrow(std::span<const Pass> passes) {
    layer_.clock.enter(Phase::transfer);
    layer_.experts.borrow(step_.decision.plan, passes, layer_.transfer);
    layer_.transfer.open_gradients(step_.decision.plan, layer_.parts.placement);
    borrowing_ = true;
  }

  // Cuts the tokens after the kept chunks into chunks that fit the memory available now. False if there are
  // no such tokens.
  bool plan_rest() {
    const auto begin = std::ranges::find(step_.decision.chunks, false, &Chunk::kept);
    if (begin == step_.decision.chunks.end()) return false;
    rest_begin_ = begin->first_token(step_.top_k.tokens, layer_.schedule.units());
    replan_rest(rest());
    if (!borrowing_) borrow(recompute_passes());
    rest_is_planned_ = true;
    return true;
  }

  // Uses the plan whose weights are already borrowed, if it fits; otherwise decides on a new plan.
  void replan_rest(const TopK& rest) {
    layer_.clock.leave_chunk(Phase::plan);
    if (borrowing_ &&
        layer_.schedule.decide_backward(rest, borrowing_bytes(recompute_passes()), step_.decision))
      return;
    return_gradients();
    layer_.clock.enter(Phase::plan);
    layer_.schedule.decide_backward(rest, std::nullopt, step_.decision);
  }

  void redispatch() {
    StepSchedule& schedule = layer_.schedule;
    layer_.clock.enter_chunk(Phase::plan);
    const Chunk& chunk = step_.decision.chunks[rest_chunks_begun_ - 1];
    const std::int64_t first = rest_begin_ + chunk.first_token(rest().tokens, schedule.units());
    ChunkInFlight& now = in_flight_.emplace(tokens_of(first, schedule.part_of(chunk, rest()).tokens));
    const StepPlan& plan = schedule.plan_chunk(now.tokens.top_k, step_.decision);
    layer_.clock.enter(Phase::dispatch);
    now.dispatched = layer_.exchange.dispatch(now.tokens.hidden, now.tokens.top_k, schedule.counts(), plan);
    if (layer_.recompute() == Recompute::whole) compute_forward();
  }

  // Recomputes the whole forward pass, like frameworks that cannot recompute a part of the experts' work.
  void compute_forward() {
    ChunkInFlight& now = *in_flight_;
    now.saved = {layer_.parts.arena, now.dispatched, layer_.budget.chunk, Lifetime::step};
    layer_.clock.statistics().recomputed_assignments += now.dispatched.positions_here;
    ExpertsForward experts(layer_, step_.decision, now.dispatched, now.tokens.hidden, now.saved);
    experts.compute_waiting();
    layer_.clock.enter(Phase::combine);
    experts.compute_rest();
    layer_.clock.enter(Phase::dispatch);
  }

  // Collects the groups of all the chunk's positions. Gradients of owned experts are added to the caller's
  // tensors, all others to the buffers to be sent to the owners.
  void collect_groups(bool recompute) {
    const auto foreign = layer_.transfer.foreign_gradients();
    layer_.groups.clear();
    for (const auto& [expert, begin, end] : in_flight_->dispatched.groups()) {
      if (begin >= end) continue;
      const auto found = std::ranges::find(foreign, expert, &WeightTransfer::ForeignGradient::expert);
      const GradientParts& sums =
          found == foreign.end() ? layer_.owned_gradients[expert.offset()] : found->parts;
      layer_.groups.push_back(
          {.prepared = layer_.experts.of(expert, Pass::backward),
           .gradients = gradients_of(sums),
           .begin = begin,
           .end = end,
           .recompute_prepared = recompute ? layer_.experts.of(expert, Pass::recompute) : nullptr,
           .saved = in_flight_->saved.at(begin)});
    }
  }

  TopK rest() const { return step_.top_k.part(rest_begin_, step_.top_k.tokens - rest_begin_); }
  ChunkTokens tokens_of(std::int64_t first, std::int64_t count) const {
    const TopK part = step_.top_k.part(first, count);
    return {part, layer_.row(step_.hidden, first), layer_.row(grad_output_, first),
            layer_.row(gradients_.hidden, first),
            gradients_.router_weights.subspan(static_cast<std::size_t>(first * part.k), part.weights.size())};
  }

  CpuLayer& layer_;
  SavedStep& step_;
  ConstRows grad_output_;
  const MoeGradients& gradients_;
  bool borrowing_ = false;
  bool rest_is_planned_ = false;  // if true, the current chunk belongs to the rest
  std::int64_t rest_begin_ = 0;   // the first token of the rest
  std::size_t rest_chunks_begun_ = 0;
  std::optional<ChunkInFlight> in_flight_;
};

}  // namespace

void CpuLayer::backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) {
  clock.start(true);
  BackwardPass pass(*this, static_cast<SavedStep&>(state), grad_output, gradients);
  run_backward(pass);
  finish_step();
}

}  // namespace evenkeel::internal
