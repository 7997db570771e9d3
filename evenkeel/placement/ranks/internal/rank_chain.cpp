#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

namespace {

// The receiver that shares a rank with each sender; empty if the deadline passes first.
std::vector<int> best_pairing(const ClusterTraffic& traffic, std::size_t exchange, const Deadline& deadline) {
  const std::vector<double>& pairs = traffic.traffic(exchange);
  const bool worst = traffic.worst_pair();
  const double crossing = worst ? least_crossing(traffic, exchange) : 0;
  const double penalty = worst ? std::ranges::max(pairs) * static_cast<double>(traffic.num_ranks()) + 1
                               : 0;  // more than all traffic that can stay
  std::vector<double> costs;
  for (double pair : pairs) costs.push_back(pair > crossing ? -pair - penalty : -pair);
  return least_total_assignment(costs, traffic.num_ranks(), deadline);
}

// With this many ranks or more, costs are summed by node rather than link by link.
constexpr std::size_t kManyRanks = 256;

// The cost of a cluster on every rank, for the traffic from senders on the given ranks.
class ReceiverCosts {
 public:
  ReceiverCosts(const ClusterTraffic& traffic, std::size_t exchange, const Ranks& senders)
      : traffic_(traffic),
        exchange_(exchange),
        senders_(senders),
        ranks_(senders.size()),
        worst_(traffic.worst_pair()),
        by_level_(traffic.topology().description().links.empty() && ranks_ >= kManyRanks),
        cluster_on_(ranks_) {
    for (std::size_t c = 0; c < ranks_; ++c) cluster_on_[static_cast<std::size_t>(senders[c])] = c;
    if (by_level_) of_node_.resize(static_cast<std::size_t>(traffic.topology().num_nodes()));
  }

  // Writes the cluster's costs [P]; returns false if the deadline passes.
  bool fill(std::size_t cluster, double* costs, const Deadline& deadline) {
    if (deadline.passed()) return false;
    if (by_level_) {
      fill_by_level(cluster, costs);
      return true;
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if ((rank & 0xff) == 0xff && deadline.passed()) return false;
      double cost = 0;
      for (std::size_t sender = 0; sender < ranks_; ++sender)
        cost = join(cost, traffic_.at(exchange_, sender, cluster) /
                              traffic_.bandwidth(static_cast<std::size_t>(senders_[sender]), rank));
      costs[rank] = cost;
    }
    return true;
  }

 private:
  // The amounts that ranks of a node send: the two largest, the rank of the largest, and the sum.
  struct Sent {
    double largest = 0;
    double second = 0;
    std::size_t from = 0;
    double sum = 0;

    void add(double amount, std::size_t rank) {
      sum += amount;
      second = std::max(second, std::min(largest, amount));
      if (amount <= largest) return;
      largest = amount;
      from = rank;
    }
  };

  double sent(std::size_t from, std::size_t cluster) const {
    return traffic_.at(exchange_, cluster_on_[from], cluster);
  }
  double join(double a, double b) const { return worst_ ? std::max(a, b) : a + b; }

  void fill_by_level(std::size_t cluster, double* costs) {
    const Topology& topology = traffic_.topology();
    std::fill(of_node_.begin(), of_node_.end(), Sent{});
    for (std::size_t from = 0; from < ranks_; ++from)
      of_node_[topology.node_of(RankId(from)).offset()].add(sent(from, cluster), from);
    Sent of_nodes;  // over the largest amounts of the nodes
    double all = 0;
    for (std::size_t node = 0; node < of_node_.size(); ++node) {
      of_nodes.add(of_node_[node].largest, node);
      all += of_node_[node].sum;
    }
    const Topology::Description& links = topology.description();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t node = topology.node_of(RankId(rank)).offset();
      const Sent& near = of_node_[node];
      double within = near.sum - sent(rank, cluster);
      double across = all - near.sum;
      if (worst_) {
        within = near.from == rank ? near.second : near.largest;
        across = of_nodes.from == node ? of_nodes.second : of_nodes.largest;
      }
      costs[rank] = join(std::max(within, 0.0) / links.within.gigabytes_per_s,
                         std::max(across, 0.0) / links.across.gigabytes_per_s);
    }
  }

  const ClusterTraffic& traffic_;
  std::size_t exchange_;
  const Ranks& senders_;
  std::size_t ranks_;
  bool worst_;
  bool by_level_;
  std::vector<std::size_t> cluster_on_;  // [P] the sending cluster on each rank
  std::vector<Sent> of_node_;
};

}  // namespace

std::vector<Ranks> chain_of_pairings(const ClusterTraffic& traffic, const Deadline& deadline) {
  const auto P = traffic.num_ranks();
  std::vector<Ranks> ranks(traffic.num_exchanges() + 1, in_order(P));
  for (std::size_t exchange = 0; exchange < traffic.num_exchanges(); ++exchange) {
    const std::vector<int> receiver = best_pairing(traffic, exchange, deadline);
    if (receiver.empty()) return {};
    for (std::size_t c = 0; c < P; ++c)
      ranks[exchange + 1][static_cast<std::size_t>(receiver[c])] = ranks[exchange][c];
  }
  return ranks;
}

Ranks best_receivers(const ClusterTraffic& traffic, const RankRule& rule, std::size_t exchange,
                     const Ranks& senders, const Deadline& deadline) {
  const std::size_t layer = traffic.receiving_layer(exchange);
  const auto P = traffic.num_ranks();
  const bool worst = traffic.worst_pair();
  std::vector<double> costs(P * P, 0.0);
  ReceiverCosts receivers(traffic, exchange, senders);
  for (std::size_t c = 0; c < P; ++c)
    if (!receivers.fill(c, &costs[c * P], deadline)) return {};
  const double largest = std::ranges::max(costs);
  const double forbidden =
      worst ? std::numeric_limits<double>::infinity() : (largest + 1) * static_cast<double>(P + 1);
  for (std::size_t c = 0; c < P; ++c)
    for (std::size_t rank = 0; rank < P; ++rank)
      if (!rule.fits(layer, c, rank)) costs[c * P + rank] = forbidden;
  return worst ? least_largest_assignment(costs, traffic.num_ranks(), deadline)
               : least_total_assignment(costs, traffic.num_ranks(), deadline);
}

}  // namespace evenkeel::internal
