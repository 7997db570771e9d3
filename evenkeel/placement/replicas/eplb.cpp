#include "evenkeel/placement/replicas/eplb.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

namespace {

void require_multiple(const char* argument, int number, const char* of, int divisor) {
  if (divisor < 1) throw InvalidArgument(of, fmt::format("{}", divisor), "1 or more");
  if (number < 1 || number % divisor != 0)
    throw InvalidArgument(argument, fmt::format("{} is not a multiple of {} = {}", number, of, divisor),
                          fmt::format("a multiple of {}", divisor));
}

// The error names a number of redundant experts that would make the replicas divide evenly.
void require_even(const EplbProblem& p) {
  if (p.num_gpus < 1 || p.num_replicas < 1 || p.num_replicas % p.num_gpus == 0)
    return require_multiple("num_replicas", p.num_replicas, "num_gpus", p.num_gpus);
  const int even = (std::max(p.num_replicas, p.num_experts) + p.num_gpus - 1) / p.num_gpus * p.num_gpus;
  throw InvalidArgument("num_replicas",
                        fmt::format("{} is not a multiple of num_gpus = {}", p.num_replicas, p.num_gpus),
                        fmt::format("a multiple of {}, such as {} ({} redundant experts)", p.num_gpus, even,
                                    even - p.num_experts));
}

// Fills in how many copies each expert has, and where they are.
void list_copies(const EplbProblem& problem, EplbMaps& maps) {
  const auto experts = static_cast<std::size_t>(problem.num_experts);
  const auto slots = static_cast<std::size_t>(problem.num_replicas);
  const auto expert_at = [&](std::size_t i) {
    return i / slots * experts + static_cast<std::size_t>(maps.physical_to_logical[i]);
  };
  maps.expert_count.assign(static_cast<std::size_t>(problem.num_layers) * experts, 0);
  for (std::size_t i = 0; i < maps.physical_to_logical.size(); ++i) ++maps.expert_count[expert_at(i)];
  maps.max_count = static_cast<int>(std::ranges::max(maps.expert_count));
  const auto width = static_cast<std::size_t>(maps.max_count);
  maps.logical_to_physical.assign(maps.expert_count.size() * width, -1);
  std::vector<std::size_t> listed(maps.expert_count.size(), 0);
  for (std::size_t i = 0; i < maps.physical_to_logical.size(); ++i)
    maps.logical_to_physical[expert_at(i) * width + listed[expert_at(i)]++] =
        static_cast<std::int64_t>(i % slots);
}

}  // namespace

ReplicaProblem replica_problem_of(const EplbProblem& p) {
  if (p.num_nodes < 1) throw InvalidArgument("num_nodes", fmt::format("{}", p.num_nodes), "1 or more");
  if (p.num_groups < 1) throw InvalidArgument("num_groups", fmt::format("{}", p.num_groups), "1 or more");
  require_even(p);
  const bool hierarchical = p.is_hierarchical();
  if (hierarchical) {
    require_multiple("num_gpus", p.num_gpus, "num_nodes", p.num_nodes);
    require_multiple("experts", p.num_experts, "num_groups", p.num_groups);
  }
  return {.num_layers = p.num_layers,
          .num_experts = p.num_experts,
          .loads = p.weight,
          .num_physical = p.num_replicas,
          .num_ranks = p.num_gpus,
          .num_nodes = hierarchical ? p.num_nodes : 1,
          .num_groups = hierarchical ? p.num_groups : 1,
          .repeats = true};
}

EplbMaps rebalance_experts(const EplbProblem& problem) {
  ReplicaSolution solution = replicate(replica_problem_of(problem));
  EplbMaps maps;
  maps.physical_to_logical.assign(solution.physical_to_logical.begin(), solution.physical_to_logical.end());
  list_copies(problem, maps);
  maps.max_over_mean = std::move(solution.max_over_mean);
  maps.bound = std::move(solution.bound);
  return maps;
}

}  // namespace evenkeel
