// Random and adversarial inputs for replicate(), and reference results that share no code with it.
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

// A random integer in least..most.
int draw_int(std::mt19937_64& random, int least, int most);

// Difficult loads of a random kind: all on one expert, zeros, equal, few distinct values, heavy tails,
// lognormal, or fractional.
std::vector<double> replica_loads(std::mt19937_64& random, int count);

// Random numbers of experts, slots and ranks without divisibility; grouped cases may be infeasible.
ReplicaCase random_replica_case(std::mt19937_64& random, int most_experts, int most_ranks, bool grouped);

// [P] rank loads of one layer, with each expert's load split evenly over its copies; computed by walking the
// slots.
std::vector<double> rank_loads_of(const ReplicaCase& c, const ReplicaSolution& solution, int layer);
double max_over_mean_of(const std::vector<double>& rank_loads);
// The max/mean of a placement, computed by walking the homes.
double max_over_mean_of(const LayerPlacement& placement, std::span<const double> loads);
// The number of homes in `after` that are not in `before`.
int new_homes(const LayerPlacement& before, const LayerPlacement& after);

// Calls show(expert in each slot, copies of each expert) for every filling of a layer's slots that keeps
// copies on distinct ranks and each group on one node. Only for few experts and slots.
void for_all_fillings(const ReplicaCase& c,
                      const std::function<void(const std::vector<std::int32_t>& expert_in,
                                               const std::vector<int>& copies)>& show);

// The least max/mean of layer 0 over all fillings; infinity if there is none.
double best_of_all(const ReplicaCase& c);

// Considers all placements of layer 0 with max/mean at most `most`. hottest_has_most: some placement gives
// the hottest expert the most copies. all_in_order: some placement never gives a hotter expert fewer copies
// than a colder one.
struct CopyOrders {
  bool hottest_has_most = false;
  bool all_in_order = false;
};
CopyOrders orders_within(const ReplicaCase& c, double most);
CopyOrders orders_of(const std::vector<double>& loads, const std::vector<int>& copies);

}  // namespace evenkeel
