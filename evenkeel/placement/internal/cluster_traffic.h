// The traffic between clusters, and its cost on links: the input of program 2 (Eq. 8-9).
//
// An exchange under layer_to_layer lies between two layers: traffic [P, P] from the clusters of one to those
// of the next. Under dispatch_combine it lies in a layer: traffic [P, P] from ranks to the clusters.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

using Ranks = std::vector<int>;  // [P] rank of each cluster of a layer

class ClusterTraffic {
 public:
  ClusterTraffic(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);

  int num_ranks() const { return static_cast<int>(ranks_); }
  std::size_t num_exchanges() const { return traffic_.size(); }
  // [P, P], row by sender.
  const std::vector<double>& traffic(std::size_t exchange) const { return traffic_[exchange]; }
  double at(std::size_t exchange, std::size_t sender, std::size_t receiver) const {
    return traffic_[exchange][sender * ranks_ + receiver];
  }
  // GB/s from a rank to another one; to itself infinite.
  double bandwidth(std::size_t from, std::size_t to) const { return bandwidth_[from * ranks_ + to]; }

  // Eq. 8 of one exchange, when its senders and receivers have these ranks.
  double cost(std::size_t exchange, const Ranks& senders, const Ranks& receivers) const;
  PairObjective pairs() const { return pairs_; }
  // The topology where its links are of two levels, within and across nodes; else null.
  const Topology* levels() const { return levels_; }

 private:
  void add_transitions(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);
  void add_sources(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of);

  std::size_t ranks_;
  PairObjective pairs_;
  const Topology* levels_;
  std::vector<std::vector<double>> traffic_;
  std::vector<double> bandwidth_;
};

}  // namespace evenkeel::internal
