// Passes with two chunks in flight.
#include <array>
#include <utility>

#include "evenkeel/exchange/overlapped_exchange.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/overlap.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/internal/step_schedule.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/layer/saved_activations.h"

namespace evenkeel {

// What both passes have in common: chunks take turns in two places, with their buffers at either end of the
// arena's gap.
class MoeLayer::Overlapped {
 public:
  Overlapped(MoeLayer& layer, ForwardState::Body& step)
      : layer_(layer), step_(step), first_chunk_(layer.clock_->statistics().chunks) {}

  void expect(std::size_t i) {
    enter(Phase::dispatch, i);
    layer_.overlapped_.expect(at(i).travelling);
  }
  void arrive(std::size_t i) {
    enter(Phase::dispatch, i);
    layer_.overlapped_.arrive(at(i).travelling);
  }

 protected:
  struct Flight {
    explicit Flight(Lifetime lifetime) : travelling(lifetime) {}
    const Dispatched& dispatched() const { return travelling.dispatched; }

    TravellingChunk travelling;
    SavedActivations saved;
    TokenRows tokens;
  };
  // Positions of a half.
  struct Half {
    std::int64_t begin, end;
  };

  // Halves take about as long, whatever the experts on a rank, so that ranks come to their middles together.
  Half half_of(const Dispatched& dispatched, int half) const {
    const std::int64_t middle =
        internal::middle_of(dispatched.groups(), dispatched.positions_here, layer_.positions_a_group_);
    return half == 0 ? Half{0, middle} : Half{middle, dispatched.positions_here};
  }
  Flight& at(std::size_t i) { return flights_[i % 2]; }
  // Gives back all that the chunk still holds.
  void leave(std::size_t i) { at(i) = Flight(at(i).travelling.lifetime()); }
  void enter(Phase phase, std::size_t i) { layer_.clock_->enter(phase, first_chunk_ + static_cast<int>(i)); }

  MoeLayer& layer_;
  ForwardState::Body& step_;

 private:
  int first_chunk_;  // of the pass's
  // The first at the low end: what is borrowed while it travels stays beyond it, at the high one.
  std::array<Flight, 2> flights_ = {Flight(Lifetime::held), Flight(Lifetime::step)};
};

class MoeLayer::OverlappedForward : public Overlapped {
 public:
  OverlappedForward(MoeLayer& layer, ForwardState::Body& step, std::span<const Chunk> chunks,
                    const TopK& top_k, Rows output)
      : Overlapped(layer, step), chunks_(chunks), top_k_(top_k), output_(output) {
    layer_.schedule_->announce(part(0));
  }

  void depart(std::size_t i) {
    enter(Phase::plan, i);
    if (i + 1 < chunks_.size()) layer_.schedule_->announce(part(i + 1));
    const StepPlan& plan = layer_.schedule_->next_chunk(step_.plan);
    enter(Phase::dispatch, i);
    layer_.overlapped_.depart(at(i).travelling, hidden(i), part(i), layer_.schedule_->counts(), plan);
  }
  void compute(std::size_t i, int half) {
    enter(Phase::compute, i);
    Flight& chunk = at(i);
    if (half == 0) begin_compute(chunk, chunks_[i].kept);
    const auto [begin, end] = half_of(chunk.dispatched(), half);
    layer_.groups_->collect(chunk.dispatched(), chunk.saved, begin, end);
    if (layer_.groups_->groups().empty()) return;
    const Buffer workspace = layer_.arena_.allocate(layer_.ffn_->workspace_bytes(Pass::forward), "products");
    layer_.ffn_->forward(
        {layer_.groups_->groups(), chunk.dispatched().input_row(), chunk.dispatched().output_row()},
        chunk.dispatched().rows(hidden(i)), chunk.travelling.results.data(), workspace.bytes());
  }
  void send_home(std::size_t i) {
    enter(Phase::combine, i);
    layer_.overlapped_.send_results_home(at(i).travelling);
  }
  void finish(std::size_t i) {
    enter(Phase::combine, i);
    Flight& chunk = at(i);
    layer_.overlapped_.sum_results(chunk.travelling, part(i).weights, layer_.row(output_, first_token(i)));
    layer_.overlapped_.end(chunk.travelling);
    if (chunks_[i].kept)
      step_.kept.push_back(
          {first_token(i), chunks_[i], std::move(chunk.travelling.dispatched), std::move(chunk.saved)});
    leave(i);
  }

 private:
  std::int64_t first_token(std::size_t i) const {
    return chunks_[i].first_token(top_k_.tokens, layer_.schedule_->units());
  }
  TopK part(std::size_t i) const {
    return top_k_.part(first_token(i),
                       chunks_[i].end_token(top_k_.tokens, layer_.schedule_->units()) - first_token(i));
  }
  const void* hidden(std::size_t i) const { return layer_.row(step_.hidden, first_token(i)); }
  void begin_compute(Flight& chunk, bool kept) {
    const Dispatched& dispatched = chunk.dispatched();
    layer_.clock_->statistics().assignments += dispatched.positions_here;
    if (kept)
      chunk.saved = {layer_.arena_,
                     dispatched,
                     {dispatched.positions_here},
                     layer_.budget_.chunk,
                     chunk.travelling.lifetime()};
    chunk.travelling.results = layer_.exchange_.result_buffer(dispatched, chunk.travelling.lifetime());
  }

  std::span<const Chunk> chunks_;
  TopK top_k_;
  Rows output_;
};

class MoeLayer::OverlappedBackward : public Overlapped {
 public:
  OverlappedBackward(MoeLayer& layer, ForwardState::Body& step, ConstRows grad_output,
                     const MoeGradients& gradients)
      : Overlapped(layer, step), grad_output_(grad_output), gradients_(gradients) {}

  void compute(std::size_t i, int half) {
    enter(Phase::compute, i);
    Flight& chunk = at(i);
    const Dispatched& dispatched = chunk.dispatched();
    if (half == 0) begin_compute(chunk);
    const auto [begin, end] = half_of(dispatched, half);
    const GradientFlow flow{dispatched, chunk.tokens, chunk.travelling.incoming, chunk.travelling.computed,
                            gradients_};
    layer_.groups_->collect_saved(dispatched, chunk.saved, begin, end);
    layer_.run_experts_backward(Pass::backward, flow);
    layer_.groups_->collect_again(dispatched, chunk.saved, begin, end);
    layer_.run_experts_backward(Pass::recompute, flow);
  }
  void send_home(std::size_t i) {
    enter(Phase::combine, i);
    layer_.overlapped_.send_gradients_home(at(i).travelling);
  }
  void finish(std::size_t i) {
    enter(Phase::combine, i);
    Flight& chunk = at(i);
    layer_.overlapped_.sum_gradients(chunk.travelling, chunk.tokens.grad_hidden,
                                     chunk.tokens.grad_router_weights);
    layer_.overlapped_.end(chunk.travelling);
    leave(i);
  }

 protected:
  void depart_gradients(std::size_t i) {
    enter(Phase::dispatch, i);
    const TokenRows& tokens = at(i).tokens;
    layer_.overlapped_.depart_gradients(at(i).travelling, tokens.grad_output, tokens.top_k.weights);
  }
  TokenRows tokens(std::int64_t first, std::int64_t count) const {
    return layer_.token_rows(step_, first, count, grad_output_, gradients_);
  }

 private:
  void begin_compute(Flight& chunk) {
    const Dispatched& dispatched = chunk.dispatched();
    const Lifetime lifetime = chunk.travelling.lifetime();
    if (!chunk.saved.any()) chunk.saved = {layer_.arena_, dispatched, {}, layer_.budget_.chunk, lifetime};
    chunk.travelling.computed =
        layer_.exchange_.gradient_buffer(dispatched, chunk.tokens.grad_hidden, lifetime);
  }

  ConstRows grad_output_;
  const MoeGradients& gradients_;
};

// Of chunks that were kept, the last first.
class MoeLayer::OverlappedKept : public OverlappedBackward {
 public:
  using OverlappedBackward::OverlappedBackward;

  void depart(std::size_t i) {
    Flight& chunk = at(i);
    ForwardState::Kept& kept = step_.kept.back();
    chunk.tokens = tokens(kept.first_token, kept.dispatched.tokens);
    chunk.travelling.dispatched = std::move(kept.dispatched);
    chunk.saved = std::move(kept.saved);
    step_.kept.pop_back();
    depart_gradients(i);
  }
};

// Of tokens from `before` on, in the schedule's chunks.
class MoeLayer::OverlappedRest : public OverlappedBackward {
 public:
  OverlappedRest(MoeLayer& layer, ForwardState::Body& step, std::int64_t before, ConstRows grad_output,
                 const MoeGradients& gradients)
      : OverlappedBackward(layer, step, grad_output, gradients), before_(before) {
    layer_.schedule_->announce(part(0).top_k);
  }

  void depart(std::size_t i) {
    enter(Phase::plan, i);
    Flight& chunk = at(i);
    if (i + 1 < layer_.schedule_->chunks().size()) layer_.schedule_->announce(part(i + 1).top_k);
    const StepPlan& plan = layer_.schedule_->next_chunk(step_.plan);
    enter(Phase::dispatch, i);
    chunk.tokens = part(i);
    layer_.overlapped_.depart(chunk.travelling, chunk.tokens.hidden, chunk.tokens.top_k,
                              layer_.schedule_->counts(), plan);
    depart_gradients(i);
  }

 private:
  TokenRows part(std::size_t i) const {
    const Chunk& chunk = layer_.schedule_->chunks()[i];
    const std::int64_t rest = step_.top_k.tokens - before_;
    const std::int64_t units = layer_.schedule_->units();
    const std::int64_t first = chunk.first_token(rest, units);
    return tokens(before_ + first, chunk.end_token(rest, units) - first);
  }

  std::int64_t before_;
};

// What fails here fails on all ranks before a chunk in flight goes.
void MoeLayer::forward_overlapped(ForwardState::Body& step, std::span<const Chunk> chunks, const TopK& top_k,
                                  Rows output) {
  OverlappedForward pass(*this, step, chunks, top_k, output);
  abort_on_error([&] {
    internal::overlap_chunks(chunks.size(), pass, [&] {
      if (!borrowing_) borrow_for_forward(step.plan);
    });
  });
}

void MoeLayer::backward_kept_overlapped(ForwardState::Body& step, ConstRows grad_output,
                                        const MoeGradients& gradients) {
  OverlappedKept pass(*this, step, grad_output, gradients);
  const std::span<const Pass> passes = step.chunks.back().kept ? internal::kBackward : again_passes();
  abort_on_error([&] {
    internal::overlap_chunks(step.kept.size(), pass, [&] { borrow_for_backward(step.plan, passes); });
  });
}

void MoeLayer::backward_rest_overlapped(ForwardState::Body& step, std::int64_t before, ConstRows grad_output,
                                        const MoeGradients& gradients) {
  OverlappedRest pass(*this, step, before, grad_output, gradients);
  abort_on_error([&] {
    internal::overlap_chunks(schedule_->chunks().size(), pass, [&] {
      if (!borrowing_) borrow_for_backward(step.plan, again_passes());
    });
  });
}

}  // namespace evenkeel
