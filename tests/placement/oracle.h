// Small placement problems and their optima by brute force. Shares no code with the solvers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

// A problem that owns its data.
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

// A problem with random loads of one kind, such as ties and zeros, one heavy expert, or loads near 2^53.
SmallProblem random_problem(std::mt19937_64& random, SmallShape shape);
// Two levels of links or a full matrix, with or without speeds.
Topology random_links(std::mt19937_64& random, int num_ranks);
// Random capacities of 1 to 4 per rank. The last rank's capacity is raised if all experts do not fit
// otherwise.
void give_capacities(std::mt19937_64& random, SmallProblem& small);

// The largest sizes that random_case() draws. Its loads are of every kind except near 2^53. Cluster sizes are
// equal or free. Some cases have capacities, so some are infeasible.
struct MostOf {
  int experts = 6;
  int ranks = 3;
  int layers = 3;
};
SmallProblem random_case(std::mt19937_64& random, const MostOf& most = {});
std::string text_of(const SmallProblem& small);

using Homes = std::vector<std::vector<int>>;  // [L][E] rank or cluster of each expert

// The costs of homes, computed by their definitions.
double oracle_balance(const SmallProblem& small, const Homes& homes);
double oracle_pairs(const SmallProblem& small, const Homes& homes);
double oracle_joint_ms(const SmallProblem& small, const Homes& homes);
// The rule of sizes or capacities that the homes break; empty if none.
std::string oracle_fault(const SmallProblem& small, const Homes& homes);

// The least value of Eq. 1 over all clusters that can be assigned to ranks by the rules. Tries P^E per layer.
double best_balance(const SmallProblem& small);
// The least value of Eq. 8 for these clusters. Tries (P!)^L.
double best_pairs(const SmallProblem& small, const Homes& clusters);
// The least predicted milliseconds. Tries (P^E)^L.
double best_joint_ms(const SmallProblem& small);

// The rank of each expert, through its cluster.
Homes homes_of(const Clustering& clustering, const RankAssignment& ranks);

// What a solver claims about its answer.
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
// Expects the optimum, within `near`, and a proof.
void expect_best(const Claim& found, double best, double near);
// Expects `best` between bound and objective, and a claimed proof only if the objective is `best`. Returns
// whether the objective is `best`.
bool expect_enclosed(const Claim& found, double best, double near);

// Calls check(random, seed) for every seed until one fails.
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
