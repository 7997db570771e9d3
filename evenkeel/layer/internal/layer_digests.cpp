#include "evenkeel/layer/internal/layer_digests.h"

#include <span>

namespace evenkeel::internal {

namespace {

constexpr std::uint64_t kLayerVersion = 1;

std::uint64_t hash_of(const LayerPlacement& placement) {
  Hash hash;
  hash.add(placement.num_experts()).add(placement.num_ranks());
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert)) hash.add(expert.value()).add(home.value());
  return hash.value();
}

std::uint64_t hash_of(const MoeShape& shape) {
  const ExpertShape& e = shape.expert;
  return Hash()
      .add(shape.num_experts)
      .add(shape.top_k)
      .add(e.hidden)
      .add(e.intermediate)
      .add(e.activation)
      .add(e.biases)
      .add(e.type)
      .value();
}

std::uint64_t hash_of(std::span<const std::int64_t> numbers) {
  Hash hash;
  for (std::int64_t number : numbers) hash.add(number);
  return hash.value();
}

std::uint64_t hash_of(const MoeOptions& options) {
  const PlannerOptions& p = options.planner;
  return Hash()
      .add(p.kind)
      .add(p.capacity_factor_thousandths)
      .add(p.min_segment)
      .add(p.imbalance_threshold_thousandths)
      .add(p.search_small)
      .add(p.costs.has_value())
      .add(p.costs.value_or(SpillCosts{}).seconds_per_assignment)
      .add(p.costs.value_or(SpillCosts{}).seconds_per_transfer)
      .add(p.costs.value_or(SpillCosts{}).seconds_per_step)
      .add(options.max_tokens)
      .add(options.with_backward)
      .add(options.states_in_flight)
      .add(options.memory.recompute)
      .add(options.memory.rule.kind)
      .add(options.memory.rule.count)
      .add(hash_of(options.memory.rule.bins))
      .add(options.memory.cost.flops_per_second)
      .add(options.memory.cost.weight_bytes_per_second)
      .add(options.memory.cost.overlap)
      .add(options.memory.cost.link_bytes_per_second)
      .add(options.memory.cost.chunk_seconds)
      .add(options.memory.keep_plan)
      .value();
}

}  // namespace

std::vector<Digest> digests_of(const MoeShape& shape, const MoeOptions& options,
                               const LayerPlacement& placement, bool bounded_arena) {
  return {{"version", kLayerVersion},
          {"shape", hash_of(shape)},
          {"options", hash_of(options)},
          {"whether the arena has a budget", bounded_arena},
          {"placement", hash_of(placement)}};
}

}  // namespace evenkeel::internal
