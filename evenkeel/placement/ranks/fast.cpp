// Program 2 without an integer-program solver: exact where it splits into assignment problems, a dynamic
// program for few ranks, else local search from a start that is best layer by layer.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel {

namespace internal {

namespace {

constexpr std::size_t kMostPermutedRanks = 4;  // 58 layers take half a million steps

struct Answer {
  std::vector<Ranks> ranks;  // empty: time ran out
  bool optimal = false;      // if the ranks break totals of free sizes: optimal without these totals
  double least = 0;          // under dispatch_combine: cost of the layers that were solved in time
};

std::vector<Ranks> layer_by_layer(const ClusterTraffic& traffic, const RankRule& rule, const Ranks& first,
                                  const Deadline& deadline) {
  std::vector<Ranks> ranks(1, first);
  for (std::size_t exchange = 0; exchange < traffic.num_exchanges(); ++exchange) {
    ranks.push_back(best_receivers(traffic, rule, exchange, ranks.back(), deadline));
    if (ranks.back().empty()) return {};
  }
  return ranks;
}

// Layers are independent here, so those not solved in time keep the ranks of the start.
Answer of_each_layer(const ClusterTraffic& traffic, const RankRule& rule, const std::vector<Ranks>& start,
                     const Deadline& deadline) {
  Answer answer{start, true};
  const Ranks sources = in_order(traffic.num_ranks());
  for (std::size_t layer = 0; layer < start.size(); ++layer) {
    const Ranks best = best_receivers(traffic, rule, layer, sources, deadline);
    answer.optimal = answer.optimal && !best.empty();
    if (best.empty()) continue;
    answer.least += traffic.cost(layer, sources, best);
    answer.ranks[layer] = best;
  }
  return answer;
}

// Solves the program while ignoring the totals of free sizes.
Answer without_totals(const ClusterTraffic& traffic, const RankRule& rule, const std::vector<Ranks>& start,
                      const Deadline& deadline) {
  if (traffic.dispatch()) return of_each_layer(traffic, rule, start, deadline);
  if (traffic.topology().has_uniform_links() && rule.fits_everywhere()) {
    Answer chain{chain_of_pairings(traffic, deadline), true};
    chain.optimal = !chain.ranks.empty();
    return chain;
  }
  if (traffic.num_ranks() > kMostPermutedRanks)
    return {layer_by_layer(traffic, rule, start.front(), deadline), false};
  const Deadline whatever_it_takes({.time_limit_s = std::numeric_limits<double>::infinity()});
  const auto cost = [&](std::size_t exchange, const Ranks& senders, const Ranks& receivers) {
    return traffic.cost(exchange, senders, receivers);
  };
  return {best_permutations(rule, traffic.num_ranks(), cost, whatever_it_takes), true};
}

double bound_of(const ClusterTraffic& traffic, const Answer& answer, const Deadline& deadline) {
  if (traffic.dispatch()) return answer.least;
  if (answer.optimal) return traffic.cost(answer.ranks);
  double bound = 0;
  for (std::size_t exchange = 0; exchange < traffic.num_exchanges(); ++exchange)
    bound += exchange_bound(traffic, exchange, deadline);
  return bound;
}

}  // namespace

RankAssignment fast_ranks(const ClusterTraffic& traffic, const RankRule& rule, const Deadline& deadline) {
  const std::vector<Ranks> start = rule.any();
  Answer answer = without_totals(traffic, rule, start, deadline);
  const double bound = bound_of(traffic, answer, deadline);
  if (answer.ranks.empty() || !rule.holds(answer.ranks)) answer.ranks = start;
  if (!deadline.passed() && !deadline.close_enough(traffic.cost(answer.ranks), bound))
    answer.ranks = search_ranks(traffic, rule, std::move(answer.ranks), deadline);
  const double objective = traffic.cost(answer.ranks);
  RankAssignment assignment{.rank_of = std::move(answer.ranks), .objective = objective, .bound = bound};
  conclude(assignment, assignment.objective, assignment.bound, false);
  deadline.report(objective, assignment.bound);
  return assignment;
}

}  // namespace internal

RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits) {
  using namespace internal;
  require_clusters(problem, clustering.cluster_of);
  require_traffic(problem);
  const Deadline deadline(limits);
  const ClusterTraffic traffic(problem, clustering.cluster_of);
  const RankRule rule(size_rule(problem), sizes_of(clustering.cluster_of, problem.topology.num_ranks()));
  return fast_ranks(traffic, rule, deadline);
}

namespace {

// [L][P, P] traffic if every rank sends the same to each cluster; fewer layers if the deadline passed.
std::vector<std::vector<double>> evenly_sent(const PlacementProblem& problem, const Clustering& clustering,
                                             const internal::Deadline& deadline) {
  const auto ranks = static_cast<std::size_t>(problem.topology.num_ranks());
  std::vector<std::vector<double>> traffic;
  for (LayerId layer : indices<LayerId>(problem.profile.num_layers())) {
    if (deadline.passed()) break;
    const std::span<const std::int64_t> loads = problem.profile.loads(layer);
    std::vector<double> row(ranks, 0.0);
    for (std::size_t expert = 0; expert < loads.size(); ++expert)
      row[static_cast<std::size_t>(clustering.cluster_of[layer.offset()][expert])] +=
          static_cast<double>(loads[expert]) / static_cast<double>(ranks);
    std::vector<double>& all = traffic.emplace_back();
    all.reserve(ranks * ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) all.insert(all.end(), row.begin(), row.end());
  }
  return traffic;
}

}  // namespace

RankAssignment assign_ranks_by_load(const PlacementProblem& problem, const Clustering& clustering,
                                    const SolveLimits& limits) {
  using namespace internal;
  require_clusters(problem, clustering.cluster_of);
  const Deadline deadline(limits);
  const RankRule rule(size_rule(problem), sizes_of(clustering.cluster_of, problem.topology.num_ranks()));
  std::vector<std::vector<double>> traffic = evenly_sent(problem, clustering, deadline);
  if (traffic.size() < rule.num_layers())
    return {.rank_of = rule.any(), .objective = std::numeric_limits<double>::infinity()};
  return fast_ranks({problem.topology, TrafficModel::dispatch_combine, problem.pairs, std::move(traffic)},
                    rule, deadline);
}

std::vector<std::vector<int>> rank_of_experts(const Clustering& clustering, const RankAssignment& ranks) {
  std::vector<std::vector<int>> rank_of = clustering.cluster_of;
  for (std::size_t layer = 0; layer < rank_of.size(); ++layer)
    for (int& cluster : rank_of[layer]) cluster = ranks.rank_of[layer][static_cast<std::size_t>(cluster)];
  return rank_of;
}

Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks) {
  return placement_of(rank_of_experts(clustering, ranks), num_ranks);
}

}  // namespace evenkeel
