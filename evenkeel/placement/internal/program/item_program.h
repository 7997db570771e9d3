// Items on ranks, layer by layer, as a linear program: MoETuner's second program, where items are
// clusters, and the joint one, where they are experts.
//
//   y[i,g,l] in {0,1}                          item i of layer l is on rank g
//   sum_g y[i,g,l] = 1                         Eq. 14
//   least <= sum_i y[i,g,l] <= most            Eq. 15 (1 and 1), or how many experts a rank may hold
//   total <= sum_{i,l} weight[i,l] y[i,g,l]    Eq. 13, where sizes differ
//
//   flow[i,g1,g2], what item i sends from g1 to g2, is linear though Eq. 8 is a product of two y:
//   sum_g2 flow[i,g1,g2] = (all that i sends) y[i,g1,l]
//   sum_g1 flow[i,g1,g2] = sum_j amount[i,j] y[j,g2,l+1]
//
//   t[l] >= fixed[g1,g2] + per_unit[g1,g2] sum_i flow[i,g1,g2]
//   min sum_l t[l]                             Eq. 8, its worst pair
//   min sum of per_unit x flow                 Eq. 8 to the letter
//
// With y whole, the first flow equation leaves only what i sends from its own rank, and the second
// then says how much.
// Cost   I P^2 flows for each step of I items: 512 at P = 8 in the second program, where one variable
//        for each product would be I^2 P^2.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/monitor.h"
#include "evenkeel/placement/internal/program/program.h"
#include "evenkeel/placement/internal/program/sizes.h"
#include "evenkeel/placement/internal/program/solve.h"

namespace evenkeel::exact {

// The units that costs and amounts are divided by. So the solver, whose tolerances are absolute, sees numbers
// up to 1000.
struct Units {
  double cost = 1;
  double amount = 1;

  static Units of(const std::vector<Exchange>& exchanges, const PairCosts& costs, double largest_compute = 0);
};

class RankProgram {
 public:
  RankProgram(int num_layers, int num_items, int num_ranks, Units units);

  // Items of one layer on one rank.
  void limit_items(int layer, int rank, int least, int most);
  void forbid(int layer, int item, int rank);
  // Eq. 13 of the rule: over all layers, the weights [L][items] on each rank.
  void limit_totals(const std::vector<std::vector<int>>& weights, const SizeRule& rule);
  // Nobody's exchange is cheaper than `floor`.
  void add_exchange(const Exchange& exchange, const PairCosts& costs, double floor);
  // The slowest rank of a layer: cost_per_load[g] x the loads on g.
  void add_compute(int layer, std::span<const double> loads, std::span<const double> cost_per_load,
                   double floor);

  ProgramAnswer solve_from(const std::vector<Ranks>& start, double seconds, const Monitor& monitor) const;
  std::vector<Ranks> ranks_of(const ProgramAnswer& answer) const;

 private:
  int y(int layer, int item, int rank) const { return (layer * num_items_ + item) * num_ranks_ + rank; }
  int flow(int first, std::size_t sender, std::size_t from, std::size_t to) const {
    return first + static_cast<int>((sender * static_cast<std::size_t>(num_ranks_) + from) *
                                        static_cast<std::size_t>(num_ranks_) +
                                    to);
  }
  int add_flows(const Exchange& exchange);
  std::vector<Term> traffic(const Exchange& exchange, int first_flow, std::size_t from, std::size_t to) const;

  Program program_;
  int num_layers_ = 0;
  int num_items_ = 0;
  int num_ranks_ = 0;
  Units units_;
};

struct RanksFound {
  std::vector<Ranks> ranks;  // empty: there are none, or none were found in time
  bool impossible = false;
};

// Ranks for clusters of such sizes [L][P], so that Eq. 13 and the capacities hold.
RanksFound ranks_with_equal_totals(const std::vector<std::vector<int>>& sizes, const SizeRule& rule,
                                   const Monitor& monitor);

}  // namespace evenkeel::exact
