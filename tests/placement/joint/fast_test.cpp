// Balance and traffic optimised jointly by the fast solver, compared with brute force.
#include <gmock/gmock.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/oracle.h"

namespace evenkeel {
namespace {

double near(double value) {
  return 1e-9 * (1 + std::abs(value));
}

double two_stage_ms(const SmallProblem& small) {
  const Clustering clustering = cluster_fast(small.problem());
  const RankAssignment ranks = assign_ranks_fast(small.problem(), clustering);
  return oracle_joint_ms(small, homes_of(clustering, ranks));
}

SmallShape random_shape(std::mt19937_64& random) {
  constexpr SmallShape shapes[] = {{1, 6, 3}, {2, 4, 2}, {2, 5, 2}, {3, 4, 2},
                                   {1, 5, 4}, {2, 3, 3}, {2, 2, 1}};
  return shapes[random() % std::size(shapes)];
}

TEST(FastJoint, IsBetweenItsBoundAndTheTwoStageAnswer) {
  int best_found = 0;
  int proven = 0;
  constexpr unsigned kSeeds = 1000;
  for_seeds(0, kSeeds, [&](std::mt19937_64& random, unsigned seed) {
    SmallProblem small = random_problem(random, random_shape(random));
    const bool free = seed % 3 == 0 && small.profile.num_experts() >= small.topology.num_ranks();
    if (free) small.sizes = ClusterSizes::free;
    const JointSolution found = place_jointly_fast(small.problem());
    const double best = best_joint_ms(small);
    EXPECT_EQ(oracle_fault(small, found.rank_of_expert), "");
    EXPECT_NEAR(found.objective_ms, oracle_joint_ms(small, found.rank_of_expert), near(best));
    EXPECT_LE(found.objective_ms, two_stage_ms(small) + near(best));
    best_found += expect_enclosed(found, best, near(best));
    proven += found.proven_optimal;
  });
  EXPECT_GE(best_found, kSeeds / 2);
  EXPECT_GE(proven, 50);
}

TEST(FastJoint, IsTheSameEachTimeAndValidWithoutTime) {
  std::mt19937_64 random(9);
  SmallProblem small = random_problem(random, {6, 24, 4});
  small.topology = Topology::uniform(2, 2, {4, 1}, {1, 5});
  const JointSolution found = place_jointly_fast(small.problem());
  EXPECT_EQ(found.rank_of_expert, place_jointly_fast(small.problem()).rank_of_expert);
  EXPECT_EQ(oracle_fault(small, found.rank_of_expert), "");
  const JointSolution hurried = place_jointly_fast(small.problem(), {.time_limit_s = 0});
  EXPECT_EQ(oracle_fault(small, hurried.rank_of_expert), "");
  EXPECT_GE(hurried.objective_ms, hurried.bound_ms);
}

TEST(FastJoint, PutsTheLoadOnFastRanks) {
  // Two experts, two ranks, no traffic: the heavy expert belongs on the rank that is three times as fast.
  SmallProblem small;
  small.profile = RoutingProfile(1, 2, {10, 30}, {});
  small.topology = Topology({.node_of_rank = {0, 0}, .speeds = {3, 1}});
  small.cost = {.assignment_us = 1000, .assignment_bytes = 0};
  const JointSolution found = place_jointly_fast(small.problem());
  EXPECT_EQ(found.rank_of_expert, (Homes{{1, 0}}));
  EXPECT_DOUBLE_EQ(found.objective_ms, 10);
  EXPECT_TRUE(found.proven_optimal);
}

TEST(FastJoint, RefusesAProfileWithoutTransitions) {
  SmallProblem small;
  small.profile = RoutingProfile(2, 4, false);
  small.topology = Topology::uniform(1, 2);
  EXPECT_THROW(place_jointly_fast(small.problem()), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
