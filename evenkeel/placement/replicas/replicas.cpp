#include "evenkeel/placement/replicas/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/pool/layer_replicas.h"

namespace evenkeel {

namespace {

void require(bool holds, const char* argument, const std::string& why, const std::string& allowed) {
  if (!holds) throw InvalidArgument(argument, why, allowed);
}

void require_sizes(const ReplicaProblem& p) {
  require(p.num_layers >= 1, "num_layers", fmt::format("{} layers", p.num_layers), "1 or more");
  require(p.num_experts >= 1 && p.num_experts < kMostIndexed, "num_experts",
          fmt::format("{} experts", p.num_experts), fmt::format("1..{}", kMostIndexed - 1));
  require(p.num_physical < kMostIndexed, "num_physical", fmt::format("{} slots", p.num_physical),
          fmt::format("fewer than {}", kMostIndexed));
  require(p.num_ranks >= 1 && p.num_ranks < kMostIndexed, "num_ranks", fmt::format("{} ranks", p.num_ranks),
          fmt::format("1..{}", kMostIndexed - 1));
  require(p.num_nodes >= 1 && p.num_nodes <= p.num_ranks, "num_nodes",
          fmt::format("{} nodes of {} ranks", p.num_nodes, p.num_ranks), "1..ranks");
  require(p.num_groups >= 1 && p.num_experts % p.num_groups == 0, "num_groups",
          fmt::format("{} groups of {} experts", p.num_groups, p.num_experts), "a divisor of the experts");
  const auto wanted = static_cast<std::size_t>(p.num_layers) * static_cast<std::size_t>(p.num_experts);
  require(p.loads.size() == wanted, "loads", fmt::format("{} numbers", p.loads.size()),
          fmt::format("{} layers x {} experts", p.num_layers, p.num_experts));
  if (p.num_physical < p.num_experts)
    throw Infeasible(
        fmt::format("{} slots for {} experts: each expert needs one", p.num_physical, p.num_experts));
}

void require_load(const ReplicaProblem& p, std::size_t at) {
  const auto experts = static_cast<std::size_t>(p.num_experts);
  if (!std::isfinite(p.loads[at]) || p.loads[at] < 0)
    throw InvalidArgument("loads",
                          fmt::format("layer {}, expert {}: {}", at / experts, at % experts, p.loads[at]),
                          "0 or more, finite");
}

// The sum of a layer's loads, none of them refused.
double total_load(const ReplicaProblem& p, std::size_t layer) {
  const auto experts = static_cast<std::size_t>(p.num_experts);
  double total = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const double load = p.loads[layer * experts + e];
    if (!(load >= 0) || std::isinf(load)) require_load(p, layer * experts + e);
    total += load;
  }
  if (!std::isfinite(total))
    throw InvalidArgument("loads", fmt::format("those of layer {} add up to {}", layer, total),
                          "a finite total");
  return total;
}

}  // namespace

ReplicaSolution replicate(const ReplicaProblem& problem) {
  require_sizes(problem);
  const auto layers = static_cast<std::size_t>(problem.num_layers);
  const auto slots = static_cast<std::size_t>(problem.num_physical);
  const auto experts = static_cast<std::size_t>(problem.num_experts);
  ReplicaSolution solution;
  solution.physical_to_logical.resize(layers * slots);
  solution.max_over_mean.resize(layers);
  solution.bound.resize(layers);
  const internal::Deadline deadline(problem.limits);
  LayerReplicas solver(problem, deadline);
  solution.slots_per_rank.assign(solver.capacities().begin(), solver.capacities().end());
  for (std::size_t l = 0; l < layers; ++l) {
    const double total = total_load(problem, l);
    const LayerQuality quality =
        solver.solve(problem.loads.subspan(l * experts, experts), total,
                     std::span(solution.physical_to_logical).subspan(l * slots, slots));
    solution.max_over_mean[l] = quality.max_over_mean;
    solution.bound[l] = quality.bound;
  }
  return solution;
}

Placement placement_of(const ReplicaSolution& solution, int num_experts) {
  const auto slots = static_cast<std::size_t>(
      std::reduce(solution.slots_per_rank.begin(), solution.slots_per_rank.end(), std::int64_t{0}));
  const auto num_ranks = static_cast<int>(solution.slots_per_rank.size());
  if (slots == 0) throw InvalidArgument("slots_per_rank", "no slots", "at least one");
  std::vector<LayerPlacement> layers;
  for (std::size_t l = 0; l < solution.physical_to_logical.size() / slots; ++l) {
    std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
    std::size_t slot = l * slots;
    for (int rank = 0; rank < num_ranks; ++rank)
      for (std::int32_t k = 0; k < solution.slots_per_rank[static_cast<std::size_t>(rank)]; ++k, ++slot) {
        const auto expert = static_cast<std::size_t>(solution.physical_to_logical[slot]);
        if (!homes[expert].empty() && homes[expert].back() == rank)
          throw Infeasible(
              fmt::format("layer {}: rank {} holds expert {} twice, which a placement cannot say; more "
                          "slots than experts x ranks?",
                          l, rank, expert));
        homes[expert].push_back(rank);
      }
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
