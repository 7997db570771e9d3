// The cost of an all-to-all: who sends how much to whom, over which links, and whether its worst pair or
// their sum counts.
#pragma once

#include <cstddef>
#include <vector>

#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

// Amounts from each sender to each item of a layer. Items are clusters or experts. Senders are the items of
// the layer before, or the ranks themselves, whose place is known.
struct Exchange {
  int to_layer = 0;
  bool from_layer_before = true;
  std::size_t num_senders = 0;
  std::size_t num_items = 0;
  std::vector<double> amounts = {};  // [senders, items]
  bool back = false;                 // what was sent from a to b costs what the link from b to a costs

  double amount(std::size_t sender, std::size_t item) const { return amounts[sender * num_items + item]; }
};

// fixed + per_unit x traffic, for each ordered pair of ranks.
struct PairCosts {
  std::size_t num_ranks = 0;
  std::vector<double> per_unit = {};  // [P, P], the diagonal 0
  std::vector<double> fixed = {};     // the same
  PairObjective objective = PairObjective::worst_pair;

  // Eq. 8: 1 / bandwidth.
  static PairCosts of_bandwidth(const Topology& topology, PairObjective objective);
  // Milliseconds of the slowest pair.
  static PairCosts of_time(const Topology& topology, const PlacementCost& cost);
  bool all_alike() const;
  // Every pair as the cheapest one: nobody pays less.
  PairCosts cheapest() const;
};

// `before` is not looked at where the senders are ranks.
double cost_of(const Exchange& exchange, const PairCosts& costs, const Ranks& before, const Ranks& here);

// The exchanges of the problem between experts, each way. Throws InvalidArgument if the profile has no
// transitions or the sources do not fit.
std::vector<Exchange> expert_exchanges(const PlacementProblem& problem);

}  // namespace evenkeel::internal
