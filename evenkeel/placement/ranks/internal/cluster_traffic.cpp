#include "evenkeel/placement/ranks/internal/cluster_traffic.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/placement/internal/rank_rule.h"

namespace evenkeel::internal {

namespace {

using Clusters = std::vector<std::vector<int>>;  // [L][E]

std::vector<std::vector<double>> transitions_of(const PlacementProblem& problem, const Clusters& cluster_of) {
  const auto E = static_cast<std::size_t>(problem.profile.num_experts());
  const auto P = static_cast<std::size_t>(problem.topology.num_ranks());
  std::vector<std::vector<double>> traffic;
  std::vector<std::int64_t> sums;
  for (std::size_t layer = 0; layer + 1 < cluster_of.size(); ++layer) {
    const auto transitions = problem.profile.transitions(LayerId(layer));
    const std::vector<int>& receivers = cluster_of[layer + 1];
    sums.assign(P * P, 0);
    for (std::size_t from = 0; from < E; ++from) {
      std::int64_t* row = &sums[static_cast<std::size_t>(cluster_of[layer][from]) * P];
      const std::int64_t* counts = &transitions[from * E];
      for (std::size_t to = 0; to < E; ++to) row[receivers[to]] += counts[to];
    }
    traffic.emplace_back(sums.begin(), sums.end());
  }
  return traffic;
}

std::vector<std::vector<double>> dispatched(const PlacementProblem& problem, const Clusters& cluster_of) {
  const auto E = static_cast<std::size_t>(problem.profile.num_experts());
  const auto P = static_cast<std::size_t>(problem.topology.num_ranks());
  std::vector<std::vector<double>> traffic;
  for (std::size_t layer = 0; layer < cluster_of.size(); ++layer) {
    std::vector<double>& sums = traffic.emplace_back(P * P, 0.0);
    for (std::size_t source = 0; source < P; ++source)
      for (std::size_t expert = 0; expert < E; ++expert)
        sums[source * P + static_cast<std::size_t>(cluster_of[layer][expert])] +=
            problem.sources.at(LayerId(layer), RankId(source), ExpertId(expert));
  }
  return traffic;
}

}  // namespace

ClusterTraffic::ClusterTraffic(const PlacementProblem& problem, const Clusters& cluster_of)
    : ClusterTraffic(problem.topology, problem.traffic, problem.pairs,
                     problem.traffic == TrafficModel::layer_to_layer ? transitions_of(problem, cluster_of)
                                                                     : dispatched(problem, cluster_of)) {}

ClusterTraffic::ClusterTraffic(const Topology& topology, TrafficModel model, PairObjective pairs,
                               std::vector<std::vector<double>> traffic)
    : ranks_(static_cast<std::size_t>(topology.num_ranks())),
      topology_(&topology),
      dispatch_(model == TrafficModel::dispatch_combine),
      worst_pair_(pairs == PairObjective::worst_pair),
      traffic_(std::move(traffic)) {
  bandwidth_.reserve(ranks_ * ranks_);
  for (RankId from : indices<RankId>(ranks_))
    for (RankId to : indices<RankId>(ranks_))
      bandwidth_.push_back(from == to ? std::numeric_limits<double>::infinity()
                                      : topology.link(from, to).gigabytes_per_s);
}

double ClusterTraffic::cost(std::size_t exchange, const Ranks& senders, const Ranks& receivers) const {
  double worst = 0;
  double total = 0;
  for (std::size_t c1 = 0; c1 < ranks_; ++c1)
    for (std::size_t c2 = 0; c2 < ranks_; ++c2) {
      const double cost = at(exchange, c1, c2) / bandwidth(static_cast<std::size_t>(senders[c1]),
                                                           static_cast<std::size_t>(receivers[c2]));
      worst = std::max(worst, cost);
      total += cost;
    }
  return worst_pair_ ? worst : total;
}

double ClusterTraffic::cost(const std::vector<Ranks>& ranks) const {
  const Ranks sources = in_order(ranks_);
  double sum = 0;
  for (std::size_t i = 0; i < num_exchanges(); ++i)
    sum += dispatch_ ? cost(i, sources, ranks[i]) : cost(i, ranks[i], ranks[i + 1]);
  return sum;
}

}  // namespace evenkeel::internal
