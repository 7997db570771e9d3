#include "evenkeel/layer/internal/overlapped_backward.h"

#include <utility>

#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/layer/internal/overlapped_pass.h"
#include "evenkeel/layer/internal/saved_limits.h"

namespace evenkeel::internal {

namespace {

class OverlappedBackward : public OverlappedPass {
 public:
  OverlappedBackward(LayerBody& layer, SavedStep& step, const BackwardTensors& tensors)
      : OverlappedPass(layer, step), tensors_(tensors) {}

  void compute(std::size_t i, int half) {
    enter(Phase::compute, i);
    Flight& chunk = at(i);
    const Dispatched& dispatched = chunk.dispatched();
    if (half == 0) begin_compute(chunk);
    const auto [begin, end] = half_of(dispatched, half);
    const GradientFlow flow{dispatched, chunk.tokens, chunk.travelling.incoming, chunk.travelling.computed};
    layer_.groups.collect_saved(dispatched, chunk.saved, begin, end);
    run_experts_backward(layer_, Pass::backward, flow);
    layer_.groups.collect_again(dispatched, chunk.saved, begin, end);
    run_experts_backward(layer_, Pass::recompute, flow);
  }
  void send_home(std::size_t i) {
    enter(Phase::combine, i);
    layer_.overlapped.send_gradients_home(at(i).travelling);
  }
  void finish(std::size_t i) {
    enter(Phase::combine, i);
    Flight& chunk = at(i);
    layer_.overlapped.sum_gradients(chunk.travelling, chunk.tokens.grad_hidden,
                                    chunk.tokens.grad_router_weights);
    layer_.overlapped.end(chunk.travelling);
    leave(i);
  }

 protected:
  void depart_gradients(std::size_t i) {
    enter(Phase::dispatch, i);
    const TokenRows& tokens = at(i).tokens;
    layer_.overlapped.depart_gradients(at(i).travelling, tokens.grad_output, tokens.top_k.weights);
  }
  TokenRows tokens(std::int64_t first, std::int64_t count) const {
    return token_rows(layer_, step_, first, count, tensors_);
  }

 private:
  void begin_compute(Flight& chunk) {
    const Dispatched& dispatched = chunk.dispatched();
    const Lifetime lifetime = chunk.travelling.lifetime();
    if (!chunk.saved.any()) chunk.saved = {layer_.arena, dispatched, {}, layer_.budget.chunk, lifetime};
    chunk.travelling.computed =
        layer_.exchange.gradient_buffer(dispatched, chunk.tokens.grad_hidden, lifetime);
  }

  const BackwardTensors& tensors_;
};

// Of chunks that were kept, the last first.
class OverlappedKept : public OverlappedBackward {
 public:
  using OverlappedBackward::OverlappedBackward;

  void depart(std::size_t i) {
    Flight& chunk = at(i);
    KeptChunk& kept = step_.kept.back();
    chunk.tokens = tokens(kept.first_token, kept.dispatched.tokens);
    chunk.travelling.dispatched = std::move(kept.dispatched);
    chunk.saved = std::move(kept.saved);
    step_.kept.pop_back();
    depart_gradients(i);
  }
};

// Of tokens from `before` on, in the schedule's chunks.
class OverlappedRest : public OverlappedBackward {
 public:
  OverlappedRest(LayerBody& layer, SavedStep& step, std::int64_t before, const BackwardTensors& tensors)
      : OverlappedBackward(layer, step, tensors), before_(before) {
    layer_.schedule.announce(part(0).top_k);
  }

  void depart(std::size_t i) {
    enter(Phase::plan, i);
    Flight& chunk = at(i);
    if (i + 1 < layer_.schedule.chunks().size()) layer_.schedule.announce(part(i + 1).top_k);
    const StepPlan& plan = layer_.schedule.next_chunk(step_.plan);
    enter(Phase::dispatch, i);
    chunk.tokens = part(i);
    layer_.overlapped.depart(chunk.travelling, chunk.tokens.hidden, chunk.tokens.top_k,
                             layer_.schedule.counts(), plan);
    depart_gradients(i);
  }

 private:
  TokenRows part(std::size_t i) const {
    const Chunk& chunk = layer_.schedule.chunks()[i];
    const std::int64_t rest = step_.top_k.tokens - before_;
    const std::int64_t units = layer_.schedule.units();
    const std::int64_t first = chunk.first_token(rest, units);
    return tokens(before_ + first, chunk.end_token(rest, units) - first);
  }

  std::int64_t before_;
};

}  // namespace

// An error in the functions below fails all ranks before a chunk in flight goes.
void backward_kept_overlapped(LayerBody& layer, SavedStep& step, std::span<const Pass> passes,
                              const BackwardTensors& tensors) {
  OverlappedKept pass(layer, step, tensors);
  abort_on_error(layer.comm, [&] {
    overlap_chunks(step.kept.size(), pass, [&] { layer.borrow_for_backward(step.plan, passes); });
  });
}

void backward_rest_overlapped(LayerBody& layer, SavedStep& step, std::int64_t before,
                              const BackwardTensors& tensors) {
  OverlappedRest pass(layer, step, before, tensors);
  abort_on_error(layer.comm, [&] {
    overlap_chunks(layer.schedule.chunks().size(), pass, [&] {
      if (!layer.borrowing) layer.borrow_for_backward(step.plan, again_passes(layer));
    });
  });
}

}  // namespace evenkeel::internal
