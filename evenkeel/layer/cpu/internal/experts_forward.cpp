#include "evenkeel/layer/cpu/internal/experts_forward.h"

#include <algorithm>

#include "evenkeel/budget/chunk_bytes.h"

namespace evenkeel::internal {

ExpertsForward::ExpertsForward(CpuLayer& layer, const StepDecision& decision, const Dispatched& dispatched,
                               const void* hidden, const SavedActivations& saved)
    : layer_(layer), dispatched_(dispatched), hidden_(hidden), saved_(saved) {
  open_results(decision.plan);
  layer.clock.enter(Phase::compute);
  ResultRows& rows = layer.result_rows;
  ChunkLoad load = dispatched.load();
  load.own_runs = std::ssize(rows.runs());
  own_rows_ = layer.parts.arena.allocate(chunk_buffers::result_index(load), "result rows");
  if (!rows.runs().empty()) rows.fill(own_rows_.as<std::int32_t>());
  results_ = layer.exchange.result_buffer(rows);
  workspace_ = layer.parts.arena.allocate(decision.workspace.forward, "products");
}

// Posted messages use the buffers, so they must finish before the buffers are freed.
ExpertsForward::~ExpertsForward() {
  try {
    layer_.stream.synchronize();
  } catch (...) {  // an earlier error is already being thrown
  }
}

// For experts that the step's plan splits, only a few results of this rank's own tokens are held at a time.
void ExpertsForward::open_results(const StepPlan& plan) {
  for (ExpertId expert : indices<ExpertId>(layer_.parts.shape.num_experts))
    layer_.split_experts[expert.offset()] = plan.splits(expert, layer_.parts.placement) ? 1 : 0;
  ResultRows& rows = layer_.result_rows;
  rows.open(dispatched_, layer_.parts.comm.rank(), layer_.split_experts);
  rows.set_rows_per_range(
      results_at_once(layer_.budget.chunk, rows.positions_in_runs(), std::ssize(rows.runs())));
}

void ExpertsForward::compute_waiting() {
  layer_.groups.clear();
  const auto runs = layer_.result_rows.runs();
  for (std::size_t g = 0; g < dispatched_.groups().size(); ++g) {
    const auto& [expert, begin, end] = dispatched_.groups()[g];
    const auto run = std::ranges::find(runs, static_cast<std::int32_t>(g), &LocalRun::group);
    const bool whole = run == runs.end();
    add_group(expert, begin, whole ? end : run->begin);
    if (!whole) add_group(expert, run->end, end);
  }
  multiply();
}

void ExpertsForward::compute_rest_and_sum(std::span<const float> weights, void* output) {
  layer_.exchange.return_results(dispatched_, results_, layer_.result_rows, weights);
  while (compute_range())
    layer_.exchange.sum_results(dispatched_, results_, layer_.result_rows, weights, output);
  layer_.stream.synchronize();
}

// Computes the results of the next range of tokens and waits for their results from elsewhere; false if no
// tokens are left.
bool ExpertsForward::compute_range() {
  if (!layer_.result_rows.next_range(own_rows_.as<std::int32_t>())) return false;
  layer_.clock.enter(Phase::compute);
  layer_.groups.clear();
  for (const LocalRun& run : layer_.result_rows.runs())
    add_group(dispatched_.groups()[static_cast<std::size_t>(run.group)].expert, run.range_begin,
              run.range_end);
  multiply();
  layer_.clock.enter(Phase::combine);
  layer_.stream.synchronize();
  return true;
}

void ExpertsForward::add_group(ExpertId expert, std::int64_t begin, std::int64_t end) {
  if (begin < end)
    layer_.groups.push_back({.prepared = layer_.experts.of(expert, Pass::forward),
                             .gradients = {},
                             .begin = begin,
                             .end = end,
                             .saved = saved_.at(begin)});
}

void ExpertsForward::multiply() {
  if (layer_.groups.empty()) return;
  const auto own_rows = own_rows_.as<const std::int32_t>();
  const auto rows = layer_.result_rows.runs().empty() ? dispatched_.output_row() : own_rows;
  layer_.ffn->forward({layer_.groups, dispatched_.input_row(), rows}, dispatched_.rows(hidden_),
                      results_.data(), workspace_.bytes());
}

}  // namespace evenkeel::internal
