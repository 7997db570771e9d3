// Inputs for replicate(), random and adversarial, and answers to them that share no code with it.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct ReplicaCase {
  int num_layers = 1;
  int num_experts = 1;
  std::vector<double> loads;
  int num_physical = 1;
  int num_ranks = 1;
  int num_nodes = 1;
  int num_groups = 1;

  ReplicaProblem problem() const {
    return {num_layers, num_experts, loads, num_physical, num_ranks, num_nodes, num_groups};
  }
  std::string text() const;  // for failure messages
};

// least..most.
int draw_int(std::mt19937_64& random, int least, int most);

// Loads of one of the kinds that go wrong: all on one expert, zeros, equal, few sizes, heavy tails,
// lognormal, not whole numbers.
std::vector<double> replica_loads(std::mt19937_64& random, int count);

// Any E, S, P without divisibility; grouped ones may be infeasible.
ReplicaCase random_replica_case(std::mt19937_64& random, int most_experts, int most_ranks, bool grouped);

// [P] loads of one layer, an expert's split evenly over its copies; by walking the slots.
std::vector<double> rank_loads_of(const ReplicaCase& c, const ReplicaSolution& solution, int layer);
double max_over_mean_of(const std::vector<double>& rank_loads);
// Of a placement, by walking homes.
double max_over_mean_of(const LayerPlacement& placement, std::span<const double> loads);
// The homes after that were none before.
int new_homes(const LayerPlacement& before, const LayerPlacement& after);

// Shows every way to fill the slots of a layer that keeps copies on distinct ranks and groups on nodes: the
// expert in each slot, and the copies of each expert. For a handful of experts and slots.
void for_all_fillings(const ReplicaCase& c,
                      const std::function<void(const std::vector<std::int32_t>& expert_in,
                                               const std::vector<int>& copies)>& show);

// The least max/mean of layer 0 over all fillings; infinity where there is none.
double best_of_all(const ReplicaCase& c);

// Whether, among all those placements of layer 0 whose max/mean is at most `most`, one gives the hottest
// expert the most copies, and one gives of any two experts the hotter at least as many.
struct CopyOrders {
  bool hottest_has_most = false;
  bool all_in_order = false;
};
CopyOrders orders_within(const ReplicaCase& c, double most);
CopyOrders orders_of(const std::vector<double>& loads, const std::vector<int>& copies);

}  // namespace evenkeel
