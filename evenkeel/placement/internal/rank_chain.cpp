#include "evenkeel/placement/internal/rank_chain.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/placement/internal/bottleneck_assignment.h"
#include "evenkeel/placement/internal/linear_assignment.h"
#include "evenkeel/placement/internal/rank_bound.h"

namespace evenkeel::internal {

namespace {

Ranks in_order(std::size_t P) {
  Ranks ranks(P);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The receiver that shares a rank with each sender.
std::vector<int> best_pairing(const ClusterTraffic& traffic, std::size_t exchange) {
  const std::vector<double>& pairs = traffic.traffic(exchange);
  const bool worst = traffic.pairs() == PairObjective::worst_pair;
  const double crossing = worst ? least_crossing(traffic, exchange) : 0;
  const double penalty =
      worst ? std::ranges::max(pairs) * traffic.num_ranks() + 1 : 0;  // above all that can stay
  std::vector<double> costs;
  for (double pair : pairs) costs.push_back(pair > crossing ? -pair - penalty : -pair);
  return least_total_assignment(costs, traffic.num_ranks());
}

}  // namespace

std::vector<Ranks> chain_of_pairings(const ClusterTraffic& traffic, std::size_t num_layers) {
  const auto P = static_cast<std::size_t>(traffic.num_ranks());
  std::vector<Ranks> ranks(num_layers, in_order(P));
  for (std::size_t exchange = 0; exchange < traffic.num_exchanges(); ++exchange) {
    const std::vector<int> receiver = best_pairing(traffic, exchange);
    for (std::size_t c = 0; c < P; ++c)
      ranks[exchange + 1][static_cast<std::size_t>(receiver[c])] = ranks[exchange][c];
  }
  return ranks;
}

Ranks best_receivers(const ClusterTraffic& traffic, const RankRule& rule, std::size_t exchange,
                     std::size_t layer, const Ranks& senders) {
  const auto P = static_cast<std::size_t>(traffic.num_ranks());
  const bool worst = traffic.pairs() == PairObjective::worst_pair;
  std::vector<double> costs(P * P, 0.0);
  double largest = 0;
  for (std::size_t c = 0; c < P; ++c)
    for (std::size_t rank = 0; rank < P; ++rank) {
      double& cost = costs[c * P + rank];
      for (std::size_t sender = 0; sender < P; ++sender) {
        const double each = traffic.at(exchange, sender, c) /
                            traffic.bandwidth(static_cast<std::size_t>(senders[sender]), rank);
        cost = worst ? std::max(cost, each) : cost + each;
      }
      largest = std::max(largest, cost);
    }
  const double forbidden =
      worst ? std::numeric_limits<double>::infinity() : (largest + 1) * static_cast<double>(P + 1);
  for (std::size_t c = 0; c < P; ++c)
    for (std::size_t rank = 0; rank < P; ++rank)
      if (!rule.fits(layer, c, rank)) costs[c * P + rank] = forbidden;
  return worst ? least_largest_assignment(costs, traffic.num_ranks())
               : least_total_assignment(costs, traffic.num_ranks());
}

std::vector<Ranks> best_dispatch(const ClusterTraffic& traffic, const RankRule& rule) {
  const Ranks sources = in_order(static_cast<std::size_t>(traffic.num_ranks()));
  std::vector<Ranks> ranks;
  for (std::size_t layer = 0; layer < traffic.num_exchanges(); ++layer)
    ranks.push_back(best_receivers(traffic, rule, layer, layer, sources));
  return ranks;
}

}  // namespace evenkeel::internal
