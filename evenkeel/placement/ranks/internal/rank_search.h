// Program 2 by local search, for links and sizes that no exact method here takes.
//
// Problem     Eq. 8 for given clusters, from ranks that the rule allows.
// Method      Two clusters of a layer swap ranks; two ranks with the same links to all others, or two such
//             nodes, are swapped in a run of layers, which changes the cost only at the ends of the run. What
//             lowers Eq. 8 stays, until nothing does. With totals to hold, swaps keep them.
// Cost        Lines of each exchange keep their largest (or their sum), so a swap is judged in O(P).
// Guarantee   Never worse than the start; the rule holds.
#pragma once

#include <random>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/rank_rule.h"

namespace evenkeel::internal {

class RankSearch {
 public:
  RankSearch(const ClusterTraffic& traffic, const RankRule& rule, TrafficModel model,
             std::vector<Ranks> start);

  void run(const Deadline& deadline);
  const std::vector<Ranks>& ranks() const { return ranks_; }
  double cost() const;

  // Eq. 8 of any ranks.
  static double cost_of(const ClusterTraffic& traffic, TrafficModel model, const std::vector<Ranks>& ranks);

 private:
  struct Lines {  // of an exchange: the largest cost of each line, or its sum
    std::vector<double> senders;
    std::vector<double> receivers;
    double cost = 0;
  };

  void descend(const Deadline& deadline);
  void shake(const Deadline& deadline);
  void shake_layer(std::size_t layer, std::mt19937_64& random, const Deadline& deadline);
  // False also where the deadline passes: no more is to be tried.
  bool swap_clusters(std::size_t layer, const Deadline& deadline);
  bool swap_runs(std::size_t one, std::size_t other);
  bool swap_suffixes(std::size_t one, std::size_t other);
  bool swap_balanced_runs(std::size_t one, std::size_t other);
  bool may_swap(std::size_t layer, std::size_t a, std::size_t b) const;
  bool interchangeable(std::size_t one, std::size_t other) const;

  // Change of Eq. 8 in the exchange that the layer receives from, or sends to, if clusters a and b swap
  // ranks.
  double receiving_change(std::size_t layer, std::size_t a, std::size_t b) const;
  double sending_change(std::size_t layer, std::size_t a, std::size_t b) const;
  double run_change(std::size_t exchange, std::size_t one, std::size_t other) const;

  // Swaps what is on two ranks; the costs of the layer's exchanges are then to be refreshed, as swap_ranks
  // does.
  void rename(std::size_t layer, std::size_t one, std::size_t other);
  void swap_ranks(std::size_t layer, std::size_t one, std::size_t other);
  void refresh(std::size_t exchange);
  double join(double a, double b) const { return worst_ ? std::max(a, b) : a + b; }
  std::size_t cluster_on(std::size_t layer, std::size_t rank) const { return cluster_on_[layer][rank]; }
  std::size_t rank_of(std::size_t layer, std::size_t cluster) const {
    return static_cast<std::size_t>(ranks_[layer][cluster]);
  }
  const Ranks& senders_of(std::size_t exchange) const { return dispatch_ ? sources_ : ranks_[exchange]; }
  std::size_t receiving_layer(std::size_t exchange) const { return dispatch_ ? exchange : exchange + 1; }

  const ClusterTraffic& traffic_;
  const RankRule& rule_;
  std::size_t num_ranks_;
  double least_gain_ = 0;  // less is rounding
  bool dispatch_;
  bool worst_;
  Ranks sources_;  // rank of each source under dispatch_combine: its own
  std::vector<Ranks> ranks_;
  std::vector<std::vector<std::size_t>> cluster_on_;  // [L][P] the inverse
  std::vector<Lines> lines_;                          // of each exchange
};

}  // namespace evenkeel::internal
