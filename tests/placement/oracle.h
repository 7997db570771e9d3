// Small placement problems, and their optima by trying everything: no code of the solvers is shared.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// A problem that owns what it refers to.
struct SmallProblem {
  RoutingProfile profile;
  Topology topology = Topology::uniform(1, 1);
  ClusterSizes sizes = ClusterSizes::equal;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PairObjective pairs = PairObjective::worst_pair;
  SourceCounts sources = {};
  PlacementCost cost = {};

  PlacementProblem problem() const {
    return {.profile = profile,
            .topology = topology,
            .sizes = sizes,
            .traffic = traffic,
            .pairs = pairs,
            .sources = sources,
            .cost = cost};
  }
};

struct SmallShape {
  int layers;
  int experts;
  int ranks;
};

// Loads of several kinds, ties, zeros, one heavy expert and sizes near 2^53 among them.
SmallProblem random_problem(std::mt19937_64& random, SmallShape shape);
// Two levels, or a full matrix, with speeds or without.
Topology random_links(std::mt19937_64& random, int num_ranks);

using Homes = std::vector<std::vector<int>>;  // [L][E] rank or cluster of each expert

// The costs of homes, by the definitions.
double oracle_balance(const SmallProblem& small, const Homes& homes);
double oracle_pairs(const SmallProblem& small, const Homes& homes);
double oracle_joint_ms(const SmallProblem& small, const Homes& homes);
// Empty if the homes obey the rules of sizes and capacities, else what they break.
std::string oracle_fault(const SmallProblem& small, const Homes& homes);

// The least Eq. 1, over all clusters that have ranks by the rules. P^E of each layer.
double best_balance(const SmallProblem& small);
// The least Eq. 8 for these clusters. (P!)^L.
double best_pairs(const SmallProblem& small, const Homes& clusters);
// The least predicted milliseconds. (P^E)^L.
double best_joint_ms(const SmallProblem& small);

}  // namespace evenkeel
