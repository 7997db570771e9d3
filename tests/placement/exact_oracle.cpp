#include "tests/placement/exact_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

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
    for (int rank = 0; rank < num_ranks; ++rank) description.rooms.push_back(between(random, 1, num_experts));
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

// Calls f for every way to put `items` on `ranks`.
void for_homes(int items, int ranks, const std::function<void(const std::vector<int>&)>& f) {
  std::vector<int> homes(static_cast<std::size_t>(items), 0);
  while (true) {
    f(homes);
    std::size_t i = 0;
    while (i < homes.size() && ++homes[i] == ranks) homes[i++] = 0;
    if (i == homes.size()) return;
  }
}

std::vector<int> held(const std::vector<int>& homes, int ranks) {
  std::vector<int> count(static_cast<std::size_t>(ranks), 0);
  for (int rank : homes) ++count[static_cast<std::size_t>(rank)];
  return count;
}

// Nobody could give one to somebody with two fewer who has room for it.
bool as_even_as_rooms_allow(const std::vector<int>& count, const PlacementProblem& problem, int times) {
  for (RankId more : indices<RankId>(count.size()))
    for (RankId fewer : indices<RankId>(count.size())) {
      const int room = times * problem.topology.room(fewer).value_or(problem.profile.num_experts());
      if (count[fewer.offset()] < room && count[more.offset()] > count[fewer.offset()] + 1) return false;
    }
  return true;
}

bool layer_keeps_the_rules(const PlacementProblem& problem, const std::vector<int>& homes) {
  const std::vector<int> count = held(homes, problem.topology.num_ranks());
  for (RankId rank : indices<RankId>(count.size())) {
    if (count[rank.offset()] > problem.topology.room(rank).value_or(problem.profile.num_experts()))
      return false;
    if (problem.sizes == ClusterSizes::free && count[rank.offset()] < 1) return false;
  }
  return problem.sizes == ClusterSizes::free || as_even_as_rooms_allow(count, problem, 1);
}

bool totals_keep_the_rules(const PlacementProblem& problem, const std::vector<int>& totals) {
  return problem.sizes == ClusterSizes::equal ||
         as_even_as_rooms_allow(totals, problem, problem.profile.num_layers());
}

}  // namespace

SmallProblem::SmallProblem(std::mt19937_64& random, const Shape& shape) {
  const int ranks = between(random, 1, shape.most_ranks);
  const int experts = between(random, ranks, shape.most_experts);
  const int layers = between(random, 1, shape.most_layers);
  profile = small_profile(random, layers, experts);
  topology = std::make_unique<Topology>(small_topology(random, ranks, experts));
  sizes = between(random, 0, 1) == 0 ? ClusterSizes::equal : ClusterSizes::free;
  pairs = between(random, 0, 1) == 0 ? PairObjective::worst_pair : PairObjective::total;
  if (between(random, 0, 1) == 0) return;
  traffic = TrafficModel::dispatch_combine;
  sources = even_source_counts(profile, ranks);
  for (double& count : sources.counts) count += between(random, 0, 9);
}

PlacementProblem SmallProblem::problem() const {
  return {.profile = profile,
          .topology = *topology,
          .sizes = sizes,
          .traffic = traffic,
          .pairs = pairs,
          .sources = sources,
          .cost = {.assignment_us = 50, .assignment_bytes = 40'000}};
}

std::string SmallProblem::text() const {
  return fmt::format("{} layers, {} experts, {} ranks, {}, {}, {}", profile.num_layers(),
                     profile.num_experts(), topology->num_ranks(),
                     sizes == ClusterSizes::equal ? "equal" : "free",
                     traffic == TrafficModel::layer_to_layer ? "layer to layer" : "dispatch",
                     pairs == PairObjective::worst_pair ? "worst pair" : "total");
}

Placement placement_of_homes(const Homes& homes, int num_ranks) {
  std::vector<LayerPlacement> layers;
  for (const std::vector<int>& layer : homes) {
    std::vector<std::vector<int>> lists;
    for (int rank : layer) lists.push_back({rank});
    layers.emplace_back(lists, num_ranks);
  }
  return Placement(layers);
}

bool keeps_the_rules(const PlacementProblem& problem, const Homes& homes) {
  std::vector<int> totals(static_cast<std::size_t>(problem.topology.num_ranks()), 0);
  for (const std::vector<int>& layer : homes) {
    if (!layer_keeps_the_rules(problem, layer)) return false;
    const std::vector<int> count = held(layer, problem.topology.num_ranks());
    for (std::size_t rank = 0; rank < count.size(); ++rank) totals[rank] += count[rank];
  }
  return totals_keep_the_rules(problem, totals);
}

double least_balance_objective(const PlacementProblem& problem) {
  const int ranks = problem.topology.num_ranks();
  // The least so far for each list of totals.
  std::map<std::vector<int>, double> least = {{std::vector<int>(static_cast<std::size_t>(ranks), 0), 0.0}};
  for (LayerId layer : indices<LayerId>(problem.profile.num_layers())) {
    const auto loads = problem.profile.loads(layer);
    const RoutingProfile alone(1, problem.profile.num_experts(), {loads.begin(), loads.end()}, {});
    PlacementProblem one{.profile = alone, .topology = problem.topology, .sources = problem.sources};
    std::map<std::vector<int>, double> of_layer;
    for_homes(problem.profile.num_experts(), ranks, [&](const std::vector<int>& homes) {
      if (!layer_keeps_the_rules(problem, homes)) return;
      const double value = balance_objective(one, placement_of_homes({homes}, ranks));
      const auto [at, added] = of_layer.try_emplace(held(homes, ranks), value);
      if (!added) at->second = std::min(at->second, value);
    });
    std::map<std::vector<int>, double> next;
    for (const auto& [totals, before] : least)
      for (const auto& [count, value] : of_layer) {
        std::vector<int> sum = totals;
        for (std::size_t rank = 0; rank < sum.size(); ++rank) sum[rank] += count[rank];
        const auto [at, added] = next.try_emplace(sum, before + value);
        if (!added) at->second = std::min(at->second, before + value);
      }
    least = std::move(next);
  }
  double best = never;
  for (const auto& [totals, value] : least)
    if (totals_keep_the_rules(problem, totals)) best = std::min(best, value);
  return best;
}

double least_pair_objective(const PlacementProblem& problem, const Clustering& clustering) {
  const int ranks = problem.topology.num_ranks();
  std::vector<std::vector<int>> ways;
  std::vector<int> way(static_cast<std::size_t>(ranks));
  std::iota(way.begin(), way.end(), 0);
  do ways.push_back(way);
  while (std::next_permutation(way.begin(), way.end()));
  double best = never;
  for_homes(problem.profile.num_layers(), static_cast<int>(ways.size()), [&](const std::vector<int>& chosen) {
    Homes homes = clustering.cluster_of;
    for (std::size_t layer = 0; layer < homes.size(); ++layer)
      for (int& home : homes[layer])
        home = ways[static_cast<std::size_t>(chosen[layer])][static_cast<std::size_t>(home)];
    if (keeps_the_rules(problem, homes))
      best = std::min(best, pair_objective(problem, placement_of_homes(homes, ranks)));
  });
  return best;
}

double least_joint_objective(const PlacementProblem& problem) {
  const int ranks = problem.topology.num_ranks();
  const int experts = problem.profile.num_experts();
  std::vector<std::vector<int>> ways;
  for_homes(experts, ranks, [&](const std::vector<int>& homes) {
    if (layer_keeps_the_rules(problem, homes)) ways.push_back(homes);
  });
  double best = never;
  if (ways.empty()) return best;
  for_homes(problem.profile.num_layers(), static_cast<int>(ways.size()), [&](const std::vector<int>& chosen) {
    Homes homes;
    for (int way : chosen) homes.push_back(ways[static_cast<std::size_t>(way)]);
    if (keeps_the_rules(problem, homes))
      best = std::min(best, joint_objective_ms(problem, placement_of_homes(homes, ranks)));
  });
  return best;
}

}  // namespace evenkeel
