// Small placement problems, and their optima by trying everything: no code of the solvers is shared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"

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
// At most 4 of each rank, and room for all experts.
void give_capacities(std::mt19937_64& random, SmallProblem& small);

// Of every kind but loads near 2^53, with equal sizes or free ones and maybe with capacities, so that some
// have no answer.
struct MostOf {
  int experts = 6;
  int ranks = 3;
  int layers = 3;
};
SmallProblem random_case(std::mt19937_64& random, const MostOf& most = {});
std::string text_of(const SmallProblem& small);

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

// The rank of each expert whose cluster is given to a rank.
Homes homes_of(const Clustering& clustering, const RankAssignment& ranks);

// What any of the solvers says of its answer.
struct Claim {
  Claim(const Clustering& found)
      : objective(found.objective), bound(found.bound), proven(found.proven_optimal) {}
  Claim(const RankAssignment& found)
      : objective(found.objective), bound(found.bound), proven(found.proven_optimal) {}
  Claim(const JointSolution& found)
      : objective(found.objective_ms), bound(found.bound_ms), proven(found.proven_optimal) {}
  double objective;
  double bound;
  bool proven;
};
// It is the best there is, to `near`, and proved so.
void expect_best(const Claim& found, double best, double near);
// The best is between bound and objective; returns whether it is the objective, which alone is called proven.
bool expect_enclosed(const Claim& found, double best, double near);

// check(random, seed) for every seed, until one fails.
template <class Check>
void for_seeds(unsigned begin, unsigned end, Check check) {
  for (unsigned seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    check(random, seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace evenkeel
