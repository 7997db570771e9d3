// Program 2 without an integer-program solver: exact where it falls apart, by a dynamic program for few
// ranks, else by local search from a start that is best layer by layer.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/ranks/internal/rank_bound.h"
#include "evenkeel/placement/ranks/internal/rank_chain.h"
#include "evenkeel/placement/ranks/internal/rank_program.h"
#include "evenkeel/placement/ranks/internal/rank_search.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

namespace {

using internal::ClusterTraffic;
using internal::Deadline;
using internal::RankRule;
using internal::Ranks;

double cost_of(const PlacementProblem& problem, const ClusterTraffic& traffic,
               const std::vector<Ranks>& ranks) {
  return internal::RankSearch::cost_of(traffic, problem.traffic, ranks);
}

struct Answer {
  std::vector<Ranks> ranks;  // empty: there was no time for all
  bool optimal = false;      // but for totals of free sizes, where the ranks do not hold them
  double least = 0;          // under dispatch_combine: what the layers cost that there was time for
};

std::vector<Ranks> layer_by_layer(const ClusterTraffic& traffic, const RankRule& rule, std::size_t num_layers,
                                  const Ranks& first, const Deadline& deadline) {
  std::vector<Ranks> ranks(1, first);
  for (std::size_t layer = 1; layer < num_layers; ++layer) {
    ranks.push_back(best_receivers(traffic, rule, layer - 1, layer, ranks.back(), deadline));
    if (ranks.back().empty()) return {};
  }
  return ranks;
}

// Each layer is by itself, so those without an answer in time keep the ranks they have at the start.
Answer of_each_layer(const ClusterTraffic& traffic, const RankRule& rule, const std::vector<Ranks>& start,
                     const Deadline& deadline) {
  Answer answer{best_dispatch(traffic, rule, deadline), true};
  Ranks sources(start.front().size());
  std::iota(sources.begin(), sources.end(), 0);
  for (std::size_t layer = 0; layer < start.size(); ++layer)
    if (!answer.ranks[layer].empty()) {
      answer.least += traffic.cost(layer, sources, answer.ranks[layer]);
    } else {
      answer.ranks[layer] = start[layer];
      answer.optimal = false;
    }
  return answer;
}

// Without the totals of free sizes.
Answer without_totals(const PlacementProblem& problem, const ClusterTraffic& traffic, const RankRule& rule,
                      const std::vector<Ranks>& start, const Deadline& deadline) {
  if (problem.traffic == TrafficModel::dispatch_combine) return of_each_layer(traffic, rule, start, deadline);
  if (problem.topology.has_uniform_links() && rule.fits_everywhere()) {
    Answer chain{chain_of_pairings(traffic, start.size(), deadline), true};
    chain.optimal = !chain.ranks.empty();
    return chain;
  }
  if (traffic.num_ranks() <= internal::kMostRanksOfProgram)
    return {best_ranks(traffic, rule, start.size()), true};
  return {layer_by_layer(traffic, rule, start.size(), start.front(), deadline), false};
}

double bound_of(const PlacementProblem& problem, const ClusterTraffic& traffic, const Answer& answer,
                const Deadline& deadline) {
  if (problem.traffic == TrafficModel::dispatch_combine) return answer.least;
  if (answer.optimal) return cost_of(problem, traffic, answer.ranks);
  double bound = 0;
  for (std::size_t exchange = 0; exchange < traffic.num_exchanges(); ++exchange)
    bound += exchange_bound(traffic, problem.topology, exchange, deadline);
  return bound;
}

}  // namespace

RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits) {
  internal::require_clusters(problem, clustering.cluster_of);
  internal::require_traffic(problem);
  const internal::Deadline deadline(limits);
  const ClusterTraffic traffic(problem, clustering.cluster_of);
  const RankRule rule(problem, clustering.cluster_of);
  const std::vector<Ranks> start = rule.any(clustering.cluster_of);
  Answer answer = without_totals(problem, traffic, rule, start, deadline);
  const double bound = bound_of(problem, traffic, answer, deadline);
  if (answer.ranks.empty() || !rule.holds(answer.ranks)) answer.ranks = start;
  if (!deadline.passed() && !deadline.close_enough(cost_of(problem, traffic, answer.ranks), bound)) {
    internal::RankSearch search(traffic, rule, problem.traffic, std::move(answer.ranks));
    search.run(deadline);
    answer.ranks = search.ranks();
  }
  const double objective = cost_of(problem, traffic, answer.ranks);
  deadline.report(objective, std::min(bound, objective));
  return {.rank_of = std::move(answer.ranks),
          .objective = objective,
          .bound = std::min(bound, objective),
          .proven_optimal = objective <= bound};
}

Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks) {
  std::vector<std::vector<int>> rank_of = clustering.cluster_of;
  for (std::size_t layer = 0; layer < rank_of.size(); ++layer)
    for (int& cluster : rank_of[layer]) cluster = ranks.rank_of[layer][static_cast<std::size_t>(cluster)];
  return placement_of(rank_of, num_ranks);
}

}  // namespace evenkeel
