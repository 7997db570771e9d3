#include "tests/placement/exact_cases.h"

#include <fmt/format.h>

#include <algorithm>

namespace evenkeel {

namespace {

int between(std::mt19937_64& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

Topology small_topology(std::mt19937_64& random, int num_ranks, int num_experts) {
  Topology::Description description;
  const int kind = between(random, 0, 3);
  for (int rank = 0; rank < num_ranks; ++rank)
    description.node_of_rank.push_back(kind == 1 && rank > 0 ? 1 : 0);
  description.within = {.gigabytes_per_s = 4, .latency_us = 1};
  description.across = {.gigabytes_per_s = 1, .latency_us = 3};
  if (kind == 2)
    for (int i = 0; i < num_ranks * num_ranks; ++i)
      description.links.push_back({.gigabytes_per_s = static_cast<double>(between(random, 1, 5)),
                                   .latency_us = static_cast<double>(between(random, 0, 4))});
  if (between(random, 0, 2) == 0)
    for (int rank = 0; rank < num_ranks; ++rank) description.speeds.push_back(between(random, 1, 3));
  if (between(random, 0, 2) == 0)
    for (int rank = 0; rank < num_ranks; ++rank)
      description.capacities.push_back(between(random, 1, num_experts));
  return Topology(description);
}

// Tokens of one expert in each layer, so that loads and transitions agree.
RoutingProfile small_profile(std::mt19937_64& random, int layers, int experts) {
  RoutingProfile profile(layers, experts);
  const int tokens = between(random, 0, 60);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < tokens * layers; ++i) {
    const int uneven = std::min(between(random, 0, experts - 1), between(random, 0, experts - 1));
    ids.push_back(uneven);
  }
  profile.add_tokens(ids, 1);
  return profile;
}

}  // namespace

SmallProblem random_case(std::mt19937_64& random, const MostOf& most) {
  const int ranks = between(random, 1, most.ranks);
  const int experts = between(random, ranks, most.experts);
  const int layers = between(random, 1, most.layers);
  SmallProblem small;
  small.profile = small_profile(random, layers, experts);
  small.topology = small_topology(random, ranks, experts);
  small.sizes = between(random, 0, 1) == 0 ? ClusterSizes::equal : ClusterSizes::free;
  small.pairs = between(random, 0, 1) == 0 ? PairObjective::worst_pair : PairObjective::total;
  small.cost = {.assignment_us = 50, .assignment_bytes = 40'000};
  if (between(random, 0, 1) == 0) return small;
  small.traffic = TrafficModel::dispatch_combine;
  small.sources = {.num_layers = layers, .num_ranks = ranks, .num_experts = experts};
  for (LayerId layer : indices<LayerId>(layers))
    for (int source = 0; source < ranks; ++source)
      for (std::int64_t load : small.profile.loads(layer))
        small.sources.counts.push_back(static_cast<double>(load) / ranks + between(random, 0, 9));
  return small;
}

std::string text_of(const SmallProblem& small) {
  return fmt::format("{} layers, {} experts, {} ranks, {}, {}, {}", small.profile.num_layers(),
                     small.profile.num_experts(), small.topology.num_ranks(),
                     small.sizes == ClusterSizes::equal ? "equal" : "free",
                     small.traffic == TrafficModel::layer_to_layer ? "layer to layer" : "dispatch",
                     small.pairs == PairObjective::worst_pair ? "worst pair" : "total");
}

}  // namespace evenkeel
