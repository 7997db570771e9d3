// The exact solvers against trying everything, on seeded small problems of every kind.
#include <gmock/gmock.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/exact.h"
#include "evenkeel/placement/exact/internal/methods.h"
#include "evenkeel/placement/fast.h"
#include "evenkeel/placement/quality.h"
#include "tests/placement/exact_oracle.h"

namespace evenkeel {
namespace {

class ExactOnSmallProblems : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }
};

double tolerance(double value) {
  return 1e-6 * std::max(1.0, value);
}

void expect_optimal(double objective, double bound, bool proven, double optimum) {
  EXPECT_NEAR(objective, optimum, tolerance(optimum));
  EXPECT_LE(bound, objective);
  EXPECT_NEAR(bound, optimum, tolerance(optimum));
  EXPECT_TRUE(proven);
}

void check_clusters(int seed, const exact::Methods& methods) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const SmallProblem small(random, {});
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + small.text());
  const PlacementProblem problem = small.problem();
  const double optimum = least_balance_objective(problem);
  if (std::isinf(optimum)) {
    EXPECT_THROW(exact::cluster(problem, {}, {}, methods), Infeasible);
    return;
  }
  const Clustering found = exact::cluster(problem, {}, {}, methods);
  expect_optimal(found.objective, found.bound, found.proven_optimal, optimum);
  // The clusters have ranks on which they keep to every rule.
  EXPECT_FALSE(std::isinf(least_pair_objective(problem, found)));
}

TEST_F(ExactOnSmallProblems, ClustersAreTheBestThereAre) {
  for (int seed = 0; seed < 300; ++seed) check_clusters(seed, {});
}

TEST_F(ExactOnSmallProblems, ClustersByTheProgramAloneAreTheBestThereAre) {
  for (int seed = 1000; seed < 1150; ++seed) check_clusters(seed, {.subsets = false});
}

void check_ranks(int seed, const exact::Methods& methods) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const SmallProblem small(random, {});
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + small.text());
  const PlacementProblem problem = small.problem();
  Clustering clustering;
  try {
    clustering = cluster_exact(problem, {}, {});
  } catch (const Infeasible&) {
    return;
  }
  const double optimum = least_pair_objective(problem, clustering);
  const RankAssignment found = exact::assign_ranks(problem, clustering, {}, {}, methods);
  expect_optimal(found.objective, found.bound, found.proven_optimal, optimum);
  const Placement placement = placement_of(clustering, found, problem.topology.num_ranks());
  EXPECT_NEAR(found.objective, pair_objective(problem, placement), tolerance(optimum));
  Homes homes = clustering.cluster_of;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    for (int& home : homes[layer]) home = found.rank_of[layer][static_cast<std::size_t>(home)];
  EXPECT_TRUE(keeps_the_rules(problem, homes));
}

TEST_F(ExactOnSmallProblems, RanksAreTheBestThereAre) {
  for (int seed = 2000; seed < 2300; ++seed) check_ranks(seed, {});
}

TEST_F(ExactOnSmallProblems, RanksByOneProgramForAllLayersAreTheBestThereAre) {
  for (int seed = 3000; seed < 3150; ++seed) check_ranks(seed, {.permutations = false, .alone = false});
}

TEST_F(ExactOnSmallProblems, HomesByPredictedTimeAreTheBestThereAre) {
  for (int seed = 4000; seed < 4150; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const SmallProblem small(random, seed % 2 == 0 ? SmallProblem::Shape{.most_experts = 4, .most_layers = 2}
                                                   : SmallProblem::Shape{.most_experts = 4, .most_ranks = 2});
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + small.text());
    const PlacementProblem problem = small.problem();
    const double optimum = least_joint_objective(problem);
    if (std::isinf(optimum)) {
      EXPECT_THROW(place_jointly_exact(problem, {}, {}), Infeasible);
      continue;
    }
    const JointSolution found = place_jointly_exact(problem, {}, {});
    expect_optimal(found.objective_ms, found.bound_ms, found.proven_optimal, optimum);
    EXPECT_TRUE(keeps_the_rules(problem, found.rank_of_expert));
    EXPECT_NEAR(
        found.objective_ms,
        joint_objective_ms(problem, placement_of_homes(found.rank_of_expert, problem.topology.num_ranks())),
        tolerance(optimum));
  }
}

// Two certificates, found in different ways, of the same problem.
TEST_F(ExactOnSmallProblems, LieBetweenTheBoundAndTheAnswerOfTheFastSolvers) {
  for (int seed = 5000; seed < 5030; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const SmallProblem small(random, {});
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + small.text());
    const PlacementProblem problem = small.problem();
    if (std::isinf(least_balance_objective(problem))) continue;
    const Clustering fast = cluster_fast(problem);
    const Clustering exact = cluster_exact(problem, fast, {});
    EXPECT_LE(exact.objective, fast.objective + tolerance(fast.objective));
    EXPECT_GE(exact.objective, fast.bound - tolerance(fast.bound));
    const RankAssignment fast_ranks = assign_ranks_fast(problem, exact);
    const RankAssignment exact_ranks = assign_ranks_exact(problem, exact, fast_ranks, {});
    EXPECT_LE(exact_ranks.objective, fast_ranks.objective + tolerance(fast_ranks.objective));
    EXPECT_GE(exact_ranks.objective, fast_ranks.bound - tolerance(fast_ranks.bound));
    const JointSolution fast_homes = place_jointly_fast(problem);
    const JointSolution exact_homes = place_jointly_exact(problem, fast_homes, {});
    EXPECT_LE(exact_homes.objective_ms, fast_homes.objective_ms + tolerance(fast_homes.objective_ms));
    EXPECT_GE(exact_homes.objective_ms, fast_homes.bound_ms - tolerance(fast_homes.bound_ms));
  }
}

}  // namespace
}  // namespace evenkeel
