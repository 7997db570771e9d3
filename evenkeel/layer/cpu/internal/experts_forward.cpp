#include "evenkeel/layer/cpu/internal/experts_forward.h"

#include "evenkeel/budget/chunk_bytes.h"

namespace evenkeel::internal {

namespace {

// Of experts that the step's plan splits, results of this rank's own tokens are held a few at a time.
void open_results(CpuLayer& layer, const StepPlan& plan, const Dispatched& dispatched) {
  std::vector<std::uint8_t>& split = layer.buffers.split_experts;
  for (ExpertId expert : indices<ExpertId>(layer.parts.shape.num_experts))
    split[expert.offset()] = plan.splits(expert, layer.parts.placement) ? 1 : 0;
  ResultRows& rows = layer.buffers.result_rows;
  rows.open(dispatched, layer.parts.comm.rank(), split);
  rows.hold_at_once(results_at_once(layer.budget.chunk, rows.positions_in_runs(), std::ssize(rows.runs())));
}

}  // namespace

ExpertsForward::ExpertsForward(CpuLayer& layer, const StepDecision& decision, const Dispatched& dispatched,
                               const void* hidden, const SavedActivations& saved)
    : layer_(layer), dispatched_(dispatched), hidden_(hidden), saved_(saved) {
  open_results(layer, decision.plan, dispatched);
  layer.clock.enter(Phase::compute);
  ResultRows& result_rows = layer.buffers.result_rows;
  in_ranges_ = !result_rows.runs().empty();
  ChunkLoad load = dispatched.load();
  load.own_runs = std::ssize(result_rows.runs());
  own_rows_ = layer.parts.arena.allocate(chunk_buffers::result_index(load), "result rows");
  if (in_ranges_) result_rows.fill(own_rows_.as<std::int32_t>());
  results_ = layer.exchange.result_buffer(result_rows);
  workspace_ = layer.parts.arena.allocate(decision.workspace.forward, "products");
}

// Messages read and write the buffers, which must not go before they are done.
ExpertsForward::~ExpertsForward() {
  try {
    layer_.stream.synchronize();
  } catch (...) {  // on the way out of what failed first
  }
}

void ExpertsForward::compute_waiting() {
  layer_.buffers.groups.collect_waiting(dispatched_, layer_.buffers.result_rows, saved_);
  multiply();
}

void ExpertsForward::compute_rest_and_sum(std::span<const float> weights, void* output) {
  layer_.exchange.return_results(dispatched_, results_, layer_.buffers.result_rows);
  compute_ranges([&] {
    layer_.exchange.sum_results(dispatched_, results_, layer_.buffers.result_rows, weights, output);
  });
}

void ExpertsForward::compute_rest() {
  compute_ranges([] {});
}

template <class Sum>
void ExpertsForward::compute_ranges(const Sum& sum) {
  while (layer_.buffers.result_rows.next_range(own_rows_.as<std::int32_t>())) {
    layer_.clock.enter(Phase::compute);
    layer_.buffers.groups.collect_range(dispatched_, layer_.buffers.result_rows, saved_);
    multiply();
    layer_.clock.enter(Phase::combine);
    layer_.stream.synchronize();
    sum();
  }
  layer_.stream.synchronize();
}

void ExpertsForward::multiply() {
  const auto groups = layer_.buffers.groups.groups();
  if (groups.empty()) return;
  const std::span<const std::int32_t> rows =
      in_ranges_ ? own_rows_.as<const std::int32_t>() : dispatched_.output_row();
  layer_.ffn->forward({groups, dispatched_.input_row(), rows}, dispatched_.rows(hidden_), results_.data(),
                      workspace_.bytes());
}

}  // namespace evenkeel::internal
