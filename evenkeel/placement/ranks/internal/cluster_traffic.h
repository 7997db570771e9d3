// The traffic between clusters, and its cost on links: the input of program 2 (Eq. 8-9).
//
// Under layer_to_layer an exchange lies between two layers: traffic [P, P] from the clusters of a layer to
// those of the next. Under dispatch_combine it lies within a layer: traffic [P, P] from ranks to clusters.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

class ClusterTraffic {
 public:
  ClusterTraffic(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);
  // `traffic` has a [P, P] matrix for each exchange.
  ClusterTraffic(const Topology& topology, TrafficModel model, PairObjective pairs,
                 std::vector<std::vector<double>> traffic);

  std::size_t num_ranks() const { return ranks_; }
  std::size_t num_exchanges() const { return traffic_.size(); }
  // [P, P], row by sender.
  const std::vector<double>& traffic(std::size_t exchange) const { return traffic_[exchange]; }
  double at(std::size_t exchange, std::size_t sender, std::size_t receiver) const {
    return traffic_[exchange][sender * ranks_ + receiver];
  }
  // GB/s from one rank to another; infinite from a rank to itself.
  double bandwidth(std::size_t from, std::size_t to) const { return bandwidth_[from * ranks_ + to]; }
  const Topology& topology() const { return *topology_; }
  bool dispatch() const { return dispatch_; }
  // The layer whose clusters receive.
  std::size_t receiving_layer(std::size_t exchange) const { return dispatch_ ? exchange : exchange + 1; }
  bool worst_pair() const { return worst_pair_; }

  // Eq. 8 of one exchange whose senders and receivers have these ranks; and of all exchanges, for ranks by
  // layer.
  double cost(std::size_t exchange, const Ranks& senders, const Ranks& receivers) const;
  double cost(const std::vector<Ranks>& ranks) const;

 private:
  std::size_t ranks_;
  const Topology* topology_;
  bool dispatch_;
  bool worst_pair_;
  std::vector<std::vector<double>> traffic_;
  std::vector<double> bandwidth_;
};

}  // namespace evenkeel::internal
