#include "evenkeel/placement/internal/cluster_traffic.h"

#include <algorithm>
#include <limits>

namespace evenkeel::internal {

ClusterTraffic::ClusterTraffic(const PlacementProblem& problem,
                               const std::vector<std::vector<int>>& cluster_of)
    : ranks_(static_cast<std::size_t>(problem.topology.num_ranks())),
      pairs_(problem.pairs),
      levels_(problem.topology.description().links.empty() ? &problem.topology : nullptr) {
  bandwidth_.reserve(ranks_ * ranks_);
  for (RankId from : indices<RankId>(ranks_))
    for (RankId to : indices<RankId>(ranks_))
      bandwidth_.push_back(from == to ? std::numeric_limits<double>::infinity()
                                      : problem.topology.link(from, to).gigabytes_per_s);
  if (problem.traffic == TrafficModel::layer_to_layer)
    add_transitions(problem, cluster_of);
  else
    add_sources(problem, cluster_of);
}

void ClusterTraffic::add_transitions(const PlacementProblem& problem,
                                     const std::vector<std::vector<int>>& cluster_of) {
  const auto E = static_cast<std::size_t>(problem.profile.num_experts());
  std::vector<std::int64_t> sums;
  for (std::size_t layer = 0; layer + 1 < cluster_of.size(); ++layer) {
    const auto transitions = problem.profile.transitions(LayerId(layer));
    const std::vector<int>& receivers = cluster_of[layer + 1];
    sums.assign(ranks_ * ranks_, 0);
    for (std::size_t from = 0; from < E; ++from) {
      std::int64_t* row = &sums[static_cast<std::size_t>(cluster_of[layer][from]) * ranks_];
      const std::int64_t* counts = &transitions[from * E];
      for (std::size_t to = 0; to < E; ++to) row[receivers[to]] += counts[to];
    }
    traffic_.emplace_back(sums.begin(), sums.end());
  }
}

void ClusterTraffic::add_sources(const PlacementProblem& problem,
                                 const std::vector<std::vector<int>>& cluster_of) {
  const auto E = static_cast<std::size_t>(problem.profile.num_experts());
  for (std::size_t layer = 0; layer < cluster_of.size(); ++layer) {
    std::vector<double> sums(ranks_ * ranks_, 0.0);
    for (std::size_t source = 0; source < ranks_; ++source)
      for (std::size_t expert = 0; expert < E; ++expert)
        sums[source * ranks_ + static_cast<std::size_t>(cluster_of[layer][expert])] +=
            problem.sources.at(LayerId(layer), RankId(source), ExpertId(expert));
    traffic_.push_back(std::move(sums));
  }
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
  return pairs_ == PairObjective::worst_pair ? worst : total;
}

}  // namespace evenkeel::internal
