#include "evenkeel/layer/internal/experts_forward.h"

#include "evenkeel/budget/chunk_bytes.h"

namespace evenkeel::internal {

namespace {

// Messages read and write the buffers made before this, which must not go before they are done.
class SettledAtEnd {
 public:
  explicit SettledAtEnd(Stream& stream) : stream_(stream) {}
  SettledAtEnd(const SettledAtEnd&) = delete;
  SettledAtEnd& operator=(const SettledAtEnd&) = delete;
  ~SettledAtEnd() {
    try {
      stream_.synchronize();
    } catch (...) {  // on the way out of what failed first
    }
  }

 private:
  Stream& stream_;
};

}  // namespace

// Of experts that the step's plan splits, results of this rank's own tokens are held a few at a time.
void open_results(LayerBody& layer, const Dispatched& dispatched, const StepPlan& plan) {
  for (ExpertId expert : indices<ExpertId>(layer.shape.num_experts))
    layer.split_experts[expert.offset()] = plan.splits(expert, layer.placement) ? 1 : 0;
  ResultRows& rows = layer.result_rows;
  rows.open(dispatched, layer.comm.rank(), layer.split_experts);
  rows.hold_at_once(results_at_once(layer.budget.chunk, rows.positions_in_runs(), std::ssize(rows.runs())));
}

void run_experts(LayerBody& layer, const Dispatched& dispatched, const void* hidden,
                 const SavedActivations& saved, const std::optional<ResultSums>& sums) {
  ResultRows& result_rows = layer.result_rows;
  ExpertGroups& groups = layer.groups;
  layer.clock.enter(Phase::compute);
  const bool in_ranges = !result_rows.runs().empty();
  const Buffer own_rows =
      layer.arena.allocate_for<std::int32_t>(in_ranges ? dispatched.positions_here : 0, "result rows");
  const auto rows = own_rows.as<std::int32_t>();
  if (in_ranges) result_rows.fill(rows);
  const Buffer results = layer.exchange.result_buffer(result_rows);
  const Buffer workspace = layer.arena.allocate(layer.workspace.forward, "products");
  const auto multiply = [&] {
    if (groups.groups().empty()) return;
    layer.ffn->forward({groups.groups(), dispatched.input_row(), in_ranges ? rows : dispatched.output_row()},
                       dispatched.rows(hidden), results.data(), workspace.bytes());
  };
  groups.collect_waiting(dispatched, result_rows, saved);
  multiply();
  // Results that other ranks wait for are on their way while this rank's own are computed.
  layer.clock.enter(Phase::combine);
  const SettledAtEnd settled(layer.stream);
  if (sums) layer.exchange.return_results(dispatched, results, result_rows);
  while (result_rows.next_range(rows)) {
    layer.clock.enter(Phase::compute);
    groups.collect_range(dispatched, result_rows, saved);
    multiply();
    layer.clock.enter(Phase::combine);
    layer.stream.synchronize();
    if (sums) layer.exchange.sum_results(dispatched, results, result_rows, sums->weights, sums->output);
  }
  layer.stream.synchronize();
}

}  // namespace evenkeel::internal
