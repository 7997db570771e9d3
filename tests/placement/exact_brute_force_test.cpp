// The exact solvers against trying everything, on seeded small problems of every kind.
#include <gmock/gmock.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/exact_cases.h"

namespace evenkeel {
namespace {

class ExactOnSmallProblems : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }
};

double tolerance(double value) {
  return 1e-6 * value + 1e-12;
}

void expect_optimal(double objective, double bound, bool proven, double optimum) {
  EXPECT_NEAR(objective, optimum, tolerance(optimum));
  EXPECT_LE(bound, objective);
  EXPECT_NEAR(bound, optimum, tolerance(optimum));
  EXPECT_TRUE(proven);
}

void check_clusters(int seed, const internal::Methods& methods) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const SmallProblem small = random_case(random);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(small));
  const PlacementProblem problem = small.problem();
  const double optimum = best_balance(small);
  if (std::isinf(optimum)) {
    EXPECT_THROW(internal::cluster_exact(problem, {}, {}, methods), Infeasible);
    return;
  }
  const Clustering found = internal::cluster_exact(problem, {}, {}, methods);
  expect_optimal(found.objective, found.bound, found.proven_optimal, optimum);
  EXPECT_NEAR(found.objective, oracle_balance(small, found.cluster_of), tolerance(optimum));
  // The clusters have ranks on which they keep to every rule; with free sizes, their own numbers.
  EXPECT_FALSE(std::isinf(best_pairs(small, found.cluster_of)));
  if (small.sizes == ClusterSizes::free) {
    EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
  }
}

TEST_F(ExactOnSmallProblems, ClustersAreTheBestThereAre) {
  for (int seed = 0; seed < 300; ++seed) check_clusters(seed, {});
}

TEST_F(ExactOnSmallProblems, ClustersByTheProgramAloneAreTheBestThereAre) {
  for (int seed = 1000; seed < 1150; ++seed) check_clusters(seed, {.subsets = false});
}

void check_ranks(int seed, const internal::Methods& methods) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const SmallProblem small = random_case(random);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(small));
  const PlacementProblem problem = small.problem();
  Clustering clustering;
  try {
    clustering = cluster_exact(problem, {}, {});
  } catch (const Infeasible&) {
    return;
  }
  const double optimum = best_pairs(small, clustering.cluster_of);
  const RankAssignment found = internal::assign_ranks_exact(problem, clustering, {}, {}, methods);
  expect_optimal(found.objective, found.bound, found.proven_optimal, optimum);
  Homes homes = clustering.cluster_of;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    for (int& home : homes[layer]) home = found.rank_of[layer][static_cast<std::size_t>(home)];
  EXPECT_NEAR(found.objective, oracle_pairs(small, homes), tolerance(optimum));
  EXPECT_EQ(oracle_fault(small, homes), "");
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
    const SmallProblem small = random_case(
        random, seed % 2 == 0 ? MostOf{.experts = 4, .layers = 2} : MostOf{.experts = 4, .ranks = 2});
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(small));
    const PlacementProblem problem = small.problem();
    const double optimum = best_joint_ms(small);
    if (std::isinf(optimum)) {
      EXPECT_THROW(place_jointly_exact(problem, {}, {}), Infeasible);
      continue;
    }
    const JointSolution found = place_jointly_exact(problem, {}, {});
    expect_optimal(found.objective_ms, found.bound_ms, found.proven_optimal, optimum);
    EXPECT_EQ(oracle_fault(small, found.rank_of_expert), "");
    EXPECT_NEAR(found.objective_ms, oracle_joint_ms(small, found.rank_of_expert), tolerance(optimum));
  }
}

// Whichever rank may have the one more of totals that cannot be equal, every stage allows it.
TEST_F(ExactOnSmallProblems, FreeSizesAreInfeasibleOnlyWhereNothingIsFeasible) {
  for (int seed = 6000; seed < 6300; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    SmallProblem small = random_case(random);
    small.sizes = ClusterSizes::free;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(small));
    const double optimum = best_balance(small);
    if (std::isinf(optimum)) continue;
    const PlaceOptions options{.solver = PlaceOptions::Solver::exact,
                               .sizes = ClusterSizes::free,
                               .traffic = small.traffic,
                               .pairs = small.pairs,
                               .sources = small.sources};
    const PlaceResult placed = place(small.profile, small.topology, options);
    EXPECT_NEAR(placed.objective.at("balance"), optimum, tolerance(optimum));
  }
}

// Two certificates, found in different ways, of the same problem.
TEST_F(ExactOnSmallProblems, LieBetweenTheBoundAndTheAnswerOfTheFastSolvers) {
  for (int seed = 5000; seed < 5030; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const SmallProblem small = random_case(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(small));
    const PlacementProblem problem = small.problem();
    if (std::isinf(best_balance(small))) continue;
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
