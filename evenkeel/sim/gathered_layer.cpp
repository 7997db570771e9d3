#include "evenkeel/sim/gathered_layer.h"

#include <algorithm>

namespace evenkeel {

GatheredLayer::GatheredLayer(const SimSetup& setup)
    : setup_(setup),
      exchange_(*setup.machine, setup.topology),
      took_(static_cast<std::size_t>(setup.topology.num_ranks())) {}

const LayerOutcome& GatheredLayer::run(const LayerTokens& tokens) {
  const ChunkShape& chunk = setup_.layer->chunk;
  const LayerSizes& sizes = setup_.layer->sizes;
  const auto ranks = static_cast<double>(tokens.num_ranks());
  const double experts = tokens.counts.num_experts();
  outcome_.moved = {};
  outcome_.pair_bytes.assign(took_.size() * took_.size(), 0);
  outcome_.chunks.assign(1, {0, 1, setup_.backward});
  outcome_.reason = StepReason::nothing_moves;
  // Each rank sends its share of all weights to every other rank.
  const double part = experts / ranks * sizes.sent_weight_bytes;
  const double gathered = exchange_seconds(part, outcome_.moved.weights);
  outcome_.seconds = setup_.machine->chunk_seconds;
  outcome_.parts = {};
  outcome_.parts[static_cast<std::size_t>(SimPhase::plan)] = outcome_.seconds;
  add_pass(products_seconds(tokens, false), gathered);
  if (setup_.backward) {
    const double again = exchange_seconds(part, outcome_.moved.weights);
    const double scattered =
        exchange_seconds(experts / ranks * sizes.expert.gradient_bytes, outcome_.moved.weights);
    add_pass(products_seconds(tokens, true), again + scattered);
  }
  outcome_.peaks.clear();
  for (RankId rank : indices<RankId>(tokens.num_ranks())) {
    std::int64_t own = 0;
    for (const std::int64_t count : tokens.counts.row(rank)) own += count;
    const std::int64_t weights = 2 * chunk.num_experts * chunk.weight_bytes;
    const std::int64_t rows = own * (chunk.row_bytes() + chunk.saved_bytes);
    const std::int64_t gradients = setup_.backward ? chunk.num_experts * chunk.gradient_bytes : 0;
    outcome_.peaks.push_back({weights + rows, setup_.backward ? weights + rows + gradients : 0});
  }
  return outcome_;
}

void GatheredLayer::add_pass(double products, double travelling) {
  const auto part = [&](SimPhase phase) -> double& {
    return outcome_.parts[static_cast<std::size_t>(phase)];
  };
  outcome_.seconds += std::max(products, travelling);
  part(SimPhase::products) += products;
  part(SimPhase::weights) += travelling;
  part(SimPhase::wait) += std::max(0.0, travelling - products);
}

double GatheredLayer::products_seconds(const LayerTokens& tokens, bool backward) const {
  const Machine& machine = *setup_.machine;
  double slowest = 0;
  for (RankId rank : indices<RankId>(tokens.num_ranks())) {
    double seconds = machine.products_seconds;
    for (const std::int64_t count : tokens.counts.row(rank))
      if (count > 0)
        seconds += expert_seconds(machine, setup_.layer->sizes.expert.work, static_cast<double>(count));
    slowest = std::max(slowest, seconds);
  }
  return slowest * (backward ? 2 : 1);
}

double GatheredLayer::exchange_seconds(double bytes_to_each, double& moved) {
  bytes_.assign(outcome_.pair_bytes.size(), bytes_to_each);
  for (std::size_t rank = 0; rank < took_.size(); ++rank) bytes_[rank * (took_.size() + 1)] = 0;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    outcome_.pair_bytes[i] += bytes_[i];
    moved += bytes_[i];
  }
  return exchange_.of(bytes_, took_);
}

}  // namespace evenkeel
