// Small random placement problems, and their optima by trying everything. Nothing is shared with the solvers:
// every candidate is judged as a Placement by evenkeel/placement/quality.h.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// A problem with what it refers to.
class SmallProblem {
 public:
  struct Shape {
    int most_experts = 6;
    int most_ranks = 3;
    int most_layers = 3;
  };
  SmallProblem(std::mt19937_64& random, const Shape& shape);

  PlacementProblem problem() const;
  std::string text() const;

  RoutingProfile profile;
  std::unique_ptr<Topology> topology;
  SourceCounts sources;
  ClusterSizes sizes = ClusterSizes::equal;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PairObjective pairs = PairObjective::worst_pair;
};

using Homes = std::vector<std::vector<int>>;  // [L][E]
Placement placement_of_homes(const Homes& homes, int num_ranks);

// Whether homes keep to sizes, rooms and Eq. 13.
bool keeps_the_rules(const PlacementProblem& problem, const Homes& homes);

// Infinity: nothing is feasible.
double least_balance_objective(const PlacementProblem& problem);  // over all layers, Eq. 13 included
double least_pair_objective(const PlacementProblem& problem, const Clustering& clustering);
double least_joint_objective(const PlacementProblem& problem);

}  // namespace evenkeel
