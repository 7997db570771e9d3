// Items on ranks, layer by layer, as a linear program: MoETuner's second program, where items are clusters,
// and the joint one, where they are experts.
//
//   y[i,g,l] in {0,1}                          item i of layer l is on rank g
//   sum_g y[i,g,l] = 1                         Eq. 14
//   least <= sum_i y[i,g,l] <= most            Eq. 15 (1 and 1), or how many experts a rank may hold
//   total <= sum_{i,l} weight[i,l] y[i,g,l]    Eq. 13, where sizes differ
//
//   flow[i,g1,g2], what item i sends from g1 to g2, is a product of two y. As variables of their own, flows
//   keep Eq. 8 linear:
//   sum_g2 flow[i,g1,g2] = (all that i sends) y[i,g1,l]
//   sum_g1 flow[i,g1,g2] = sum_j amount[i,j] y[j,g2,l+1]
//
//   t[l] >= fixed[g1,g2] + per_unit[g1,g2] sum_i flow[i,g1,g2]
//   min sum_l t[l]                             Eq. 8, its worst pair
//   min sum of per_unit x flow                 Eq. 8 to the letter
//
// If y is integer, the first flow equation allows flow only from item i's own rank, and the second then fixes
// the amount.
// Cost   I P^2 flows for each exchange of I items: 512 at P = 8 in the second program. One variable for each
//        product would need I^2 P^2.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/program.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

// Costs and amounts are divided by these units so that numbers are at most about 1000, because the solver's
// tolerances are absolute.
struct Units {
  double cost = 1;
  double amount = 1;

  static Units of(const std::vector<Exchange>& exchanges, const PairCosts& costs,
                  double largest_compute = 0) {
    double largest = 0;
    for (const Exchange& exchange : exchanges)
      for (double amount : exchange.amounts) largest = std::max(largest, amount);
    double per_unit = 0;
    for (double each : costs.per_unit) per_unit = std::max(per_unit, each);
    const double cost = std::max(largest * per_unit, largest_compute);
    return {.cost = cost > 0 ? cost / 1000 : 1, .amount = largest > 0 ? largest / 1000 : 1};
  }
};

class RankProgram {
 public:
  RankProgram(int num_layers, int num_items, int num_ranks, Units units)
      : num_layers_(num_layers), num_items_(num_items), num_ranks_(num_ranks), units_(units) {
    for (int i = 0; i < num_layers * num_items * num_ranks; ++i) program_.add_binary();
    std::vector<Term> row;
    for (int layer = 0; layer < num_layers; ++layer)
      for (int item = 0; item < num_items; ++item) {
        row.clear();
        for (int rank = 0; rank < num_ranks; ++rank) row.push_back({y(layer, item, rank)});
        program_.add_row({1, 1}, row);
      }
  }

  // Limits the number of items of one layer on one rank.
  void limit_items(int layer, int rank, int least, int most) {
    std::vector<Term> row;
    for (int item = 0; item < num_items_; ++item) row.push_back({y(layer, item, rank)});
    program_.add_row({static_cast<double>(least), static_cast<double>(most)}, row);
  }

  // Puts exactly one item on each rank, and only where may_lie() allows it.
  void give_each_rank_one(int layer, const std::function<bool(std::size_t item, std::size_t rank)>& may_lie) {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      limit_items(layer, rank, 1, 1);
      for (int item = 0; item < num_items_; ++item)
        if (!may_lie(static_cast<std::size_t>(item), static_cast<std::size_t>(rank)))
          program_.columns[static_cast<std::size_t>(y(layer, item, rank))].upper = 0;
    }
  }

  // Eq. 13 of the rule: limits the total weight on each rank over all layers. `weights` is [L][items].
  void limit_totals(const std::vector<std::vector<int>>& weights, const SizeRule& rule) {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      std::vector<Term> row;
      for (int layer = 0; layer < num_layers_; ++layer)
        for (int item = 0; item < num_items_; ++item)
          row.push_back({y(layer, item, rank),
                         static_cast<double>(
                             weights[static_cast<std::size_t>(layer)][static_cast<std::size_t>(item)])});
      const auto r = static_cast<std::size_t>(rank);
      program_.add_row({static_cast<double>(rule.in_all.least[r]), static_cast<double>(rule.in_all.most[r])},
                       row);
    }
  }

  // Adds the cost of an exchange. `floor` is a lower bound on it.
  void add_exchange(const Exchange& exchange, const PairCosts& costs, double floor) {
    const auto ranks = static_cast<std::size_t>(num_ranks_);
    const int first_flow = exchange.from_layer_before ? add_flows(exchange) : 0;
    const int t = program_.add_column({std::max(0.0, floor) / units_.cost, infinity}, 1);
    std::vector<Term> all = {{t}};
    double all_fixed = 0;
    for (std::size_t from = 0; from < ranks; ++from)
      for (std::size_t to = 0; to < ranks; ++to) {
        if (from == to) continue;
        const std::size_t link = exchange.back ? to * ranks + from : from * ranks + to;
        std::vector<Term> row = traffic(exchange, first_flow, from, to);
        for (Term& term : row) term.coefficient *= -costs.per_unit[link] * units_.amount / units_.cost;
        if (costs.objective == PairObjective::total) {
          all.insert(all.end(), row.begin(), row.end());
          all_fixed += costs.fixed[link] / units_.cost;
          continue;
        }
        row.push_back({t});
        program_.add_row({costs.fixed[link] / units_.cost, infinity}, row);
      }
    if (costs.objective == PairObjective::worst_pair) return;
    // A column may occur only once in a row, but with fixed senders several ranks send to the same y.
    std::sort(all.begin(), all.end(), [](const Term& a, const Term& b) { return a.column < b.column; });
    std::vector<Term> merged;
    for (const Term& term : all) {
      if (!merged.empty() && merged.back().column == term.column)
        merged.back().coefficient += term.coefficient;
      else
        merged.push_back(term);
    }
    program_.add_row({all_fixed, infinity}, merged);
  }

  // Adds the cost of a layer's slowest rank: cost_per_load[g] x the loads on g.
  void add_compute(int layer, std::span<const double> loads, std::span<const double> cost_per_load,
                   double floor) {
    const int slowest = program_.add_column({floor / units_.cost, infinity}, 1);
    for (int rank = 0; rank < num_ranks_; ++rank) {
      std::vector<Term> row = {{slowest}};
      for (int item = 0; item < num_items_; ++item)
        row.push_back({y(layer, item, rank), -loads[static_cast<std::size_t>(item)] *
                                                 cost_per_load[static_cast<std::size_t>(rank)] /
                                                 units_.cost});
      program_.add_row({0, infinity}, row);
    }
  }

  // Stops at the deadline's relative gap, or within `absolute_gap` of the optimum.
  ProgramAnswer solve_from(const std::vector<Ranks>& start, double seconds, const Deadline& deadline,
                           double absolute_gap = 0) const {
    std::vector<double> values;
    if (!start.empty()) {
      values.assign(program_.columns.size(), 0.0);
      for (int layer = 0; layer < num_layers_; ++layer)
        for (int item = 0; item < num_items_; ++item)
          values[static_cast<std::size_t>(
              y(layer, item, start[static_cast<std::size_t>(layer)][static_cast<std::size_t>(item)]))] = 1;
    }
    ProgramAnswer answer = solve(program_,
                                 {.seconds = seconds,
                                  .absolute_gap = std::max(absolute_gap, 0.0) / units_.cost,
                                  .start = values,
                                  .unit = units_.cost},
                                 deadline);
    answer.bound *= units_.cost;
    // The solver's bound may be too high by its tolerance, so lower it by that.
    answer.bound -= 1e-6 * std::abs(answer.bound);
    return answer;
  }

  std::vector<Ranks> ranks_of(const ProgramAnswer& answer) const {
    std::vector<Ranks> ranks(static_cast<std::size_t>(num_layers_),
                             Ranks(static_cast<std::size_t>(num_items_)));
    for (int layer = 0; layer < num_layers_; ++layer)
      for (int item = 0; item < num_items_; ++item)
        for (int rank = 0; rank < num_ranks_; ++rank)
          if (answer.is_set(y(layer, item, rank)))
            ranks[static_cast<std::size_t>(layer)][static_cast<std::size_t>(item)] = rank;
    return ranks;
  }

 private:
  int y(int layer, int item, int rank) const { return (layer * num_items_ + item) * num_ranks_ + rank; }
  int flow(int first, std::size_t sender, std::size_t from, std::size_t to) const {
    return first + static_cast<int>((sender * static_cast<std::size_t>(num_ranks_) + from) *
                                        static_cast<std::size_t>(num_ranks_) +
                                    to);
  }
  int add_flows(const Exchange& exchange) {
    const auto ranks = static_cast<std::size_t>(num_ranks_);
    const int first = program_.num_columns();
    for (std::size_t i = 0; i < exchange.num_senders * ranks * ranks; ++i) program_.add_column({0, infinity});
    std::vector<Term> row;
    for (std::size_t sender = 0; sender < exchange.num_senders; ++sender) {
      double sent = 0;
      for (std::size_t item = 0; item < exchange.num_items; ++item) sent += exchange.amount(sender, item);
      for (std::size_t from = 0; from < ranks; ++from) {
        row.assign(1, {y(exchange.to_layer - 1, static_cast<int>(sender), static_cast<int>(from)),
                       -sent / units_.amount});
        for (std::size_t to = 0; to < ranks; ++to) row.push_back({flow(first, sender, from, to)});
        program_.add_row({0, 0}, row);
      }
      for (std::size_t to = 0; to < ranks; ++to) {
        row.clear();
        for (std::size_t from = 0; from < ranks; ++from) row.push_back({flow(first, sender, from, to)});
        for (std::size_t item = 0; item < exchange.num_items; ++item)
          row.push_back({y(exchange.to_layer, static_cast<int>(item), static_cast<int>(to)),
                         -exchange.amount(sender, item) / units_.amount});
        program_.add_row({0, 0}, row);
      }
    }
    return first;
  }

  std::vector<Term> traffic(const Exchange& exchange, int first_flow, std::size_t from,
                            std::size_t to) const {
    std::vector<Term> terms;
    if (exchange.from_layer_before) {
      for (std::size_t sender = 0; sender < exchange.num_senders; ++sender)
        terms.push_back({flow(first_flow, sender, from, to)});
    } else {
      for (std::size_t item = 0; item < exchange.num_items; ++item)
        terms.push_back({y(exchange.to_layer, static_cast<int>(item), static_cast<int>(to)),
                         exchange.amount(from, item) / units_.amount});
    }
    return terms;
  }

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

// Finds ranks for clusters of these sizes [L][P] such that Eq. 13 and the capacities hold.
inline RanksFound ranks_with_equal_totals(const std::vector<std::vector<int>>& sizes, const SizeRule& rule,
                                          const Deadline& deadline) {
  RankProgram program(rule.num_layers, rule.num_ranks, rule.num_ranks, Units{});
  for (int layer = 0; layer < rule.num_layers; ++layer)
    program.give_each_rank_one(layer, [&](std::size_t cluster, std::size_t rank) {
      return sizes[static_cast<std::size_t>(layer)][cluster] <= rule.in_layer.most[rank];
    });
  if (rule.has_totals()) program.limit_totals(sizes, rule);
  const ProgramAnswer answer = program.solve_from({}, deadline.seconds_left(), deadline);
  if (answer.values.empty()) return {.ranks = {}, .impossible = answer.end == ProgramAnswer::End::infeasible};
  return {.ranks = program.ranks_of(answer)};
}

}  // namespace evenkeel::internal
