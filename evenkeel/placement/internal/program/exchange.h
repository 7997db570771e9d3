// The cost of an all-to-all: who sends how much to whom, over which links, and whether the worst pair or the
// sum of pairs counts.
#pragma once

#include <cstddef>
#include <vector>

#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

// Amounts from each sender to each item of a layer. Items are clusters or experts. Senders are the items of
// the layer before, or ranks, whose position is fixed.
struct Exchange {
  int to_layer = 0;
  bool from_layer_before = true;
  std::size_t num_senders = 0;
  std::size_t num_items = 0;
  std::vector<double> amounts = {};  // [senders, items]
  bool back = false;                 // true: traffic from a to b uses the link from b to a

  double amount(std::size_t sender, std::size_t item) const { return amounts[sender * num_items + item]; }
};

// The cost of each ordered pair of ranks is fixed + per_unit x traffic.
struct PairCosts {
  std::size_t num_ranks = 0;
  std::vector<double> per_unit = {};  // [P, P], diagonal 0
  std::vector<double> fixed = {};     // [P, P], diagonal 0
  PairObjective objective = PairObjective::worst_pair;

  // Eq. 8: 1 / bandwidth.
  static PairCosts of_bandwidth(const Topology& topology, PairObjective objective);
  // Milliseconds of the slowest pair.
  static PairCosts of_time(const Topology& topology, const PlacementCost& cost);
  bool all_alike() const;
  // Costs with every pair as cheap as the cheapest: a lower bound.
  PairCosts cheapest() const;
};

// `before` is ignored if the senders are ranks.
double cost_of(const Exchange& exchange, const PairCosts& costs, const Ranks& before, const Ranks& here);

// The problem's exchanges between experts; under dispatch_combine one for each direction. Throws
// InvalidArgument if the profile has no transitions or the sources do not fit.
std::vector<Exchange> expert_exchanges(const PlacementProblem& problem);

}  // namespace evenkeel::internal
