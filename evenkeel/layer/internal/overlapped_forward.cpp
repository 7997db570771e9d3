#include "evenkeel/layer/internal/overlapped_forward.h"

#include <utility>

#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/layer/internal/overlapped_pass.h"

namespace evenkeel::internal {

namespace {

class OverlappedForward : public OverlappedPass {
 public:
  OverlappedForward(LayerBody& layer, SavedStep& step, std::span<const Chunk> chunks, const TopK& top_k,
                    Rows output)
      : OverlappedPass(layer, step), chunks_(chunks), top_k_(top_k), output_(output) {
    layer_.schedule.announce(part(0));
  }

  void depart(std::size_t i) {
    enter(Phase::plan, i);
    if (i + 1 < chunks_.size()) layer_.schedule.announce(part(i + 1));
    const StepPlan& plan = layer_.schedule.next_chunk(step_.plan);
    enter(Phase::dispatch, i);
    layer_.overlapped.depart(at(i).travelling, hidden(i), part(i), layer_.schedule.counts(), plan);
  }
  void compute(std::size_t i, int half) {
    enter(Phase::compute, i);
    Flight& chunk = at(i);
    if (half == 0) begin_compute(chunk, chunks_[i].kept);
    const auto [begin, end] = half_of(chunk.dispatched(), half);
    layer_.groups.collect(chunk.dispatched(), chunk.saved, begin, end);
    if (layer_.groups.groups().empty()) return;
    const Buffer workspace = layer_.arena.allocate(layer_.workspace.forward, "products");
    layer_.ffn->forward(
        {layer_.groups.groups(), chunk.dispatched().input_row(), chunk.dispatched().output_row()},
        chunk.dispatched().rows(hidden(i)), chunk.travelling.results.data(), workspace.bytes());
  }
  void send_home(std::size_t i) {
    enter(Phase::combine, i);
    layer_.overlapped.send_results_home(at(i).travelling);
  }
  void finish(std::size_t i) {
    enter(Phase::combine, i);
    Flight& chunk = at(i);
    layer_.overlapped.sum_results(chunk.travelling, part(i).weights, layer_.row(output_, first_token(i)));
    layer_.overlapped.end(chunk.travelling);
    if (chunks_[i].kept)
      step_.kept.push_back(
          {first_token(i), chunks_[i], std::move(chunk.travelling.dispatched), std::move(chunk.saved)});
    leave(i);
  }

 private:
  std::int64_t first_token(std::size_t i) const {
    return chunks_[i].first_token(top_k_.tokens, layer_.schedule.units());
  }
  TopK part(std::size_t i) const {
    const std::int64_t end = chunks_[i].end_token(top_k_.tokens, layer_.schedule.units());
    return top_k_.part(first_token(i), end - first_token(i));
  }
  const void* hidden(std::size_t i) const { return layer_.row(step_.hidden, first_token(i)); }
  void begin_compute(Flight& chunk, bool kept) {
    const Dispatched& dispatched = chunk.dispatched();
    const Lifetime lifetime = chunk.travelling.lifetime();
    layer_.clock.statistics().assignments += dispatched.positions_here;
    if (kept)
      chunk.saved = {layer_.arena, dispatched, {dispatched.positions_here}, layer_.budget.chunk, lifetime};
    chunk.travelling.results = layer_.exchange.result_buffer(dispatched, lifetime);
  }

  std::span<const Chunk> chunks_;
  const TopK& top_k_;
  Rows output_;
};

}  // namespace

// An error here fails all ranks before a chunk in flight goes.
void forward_overlapped(LayerBody& layer, SavedStep& step, std::span<const Chunk> chunks, const TopK& top_k,
                        Rows output) {
  OverlappedForward pass(layer, step, chunks, top_k, output);
  abort_on_error(layer.comm, [&] {
    overlap_chunks(chunks.size(), pass, [&] {
      if (!layer.borrowing) layer.borrow_for_forward(step.plan);
    });
  });
}

}  // namespace evenkeel::internal
