// The exact solvers compared with brute force, on random small problems of every kind.
#include <gmock/gmock.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/oracle.h"

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

// Calls check(problem) for random problems of every kind; some are infeasible.
template <class Check>
void for_cases(unsigned begin, unsigned end, const Check& check) {
  for_seeds(begin, end, [&](std::mt19937_64& random, unsigned) {
    const SmallProblem small = random_case(random);
    SCOPED_TRACE(text_of(small));
    check(small);
  });
}

void check_clusters(const SmallProblem& small, const internal::Methods& methods) {
  const PlacementProblem problem = small.problem();
  const double optimum = best_balance(small);
  if (std::isinf(optimum)) {
    EXPECT_THROW(internal::cluster_exact(problem, {}, {}, methods), Infeasible);
    return;
  }
  const Clustering found = internal::cluster_exact(problem, {}, {}, methods);
  expect_best(found, optimum, tolerance(optimum));
  EXPECT_LE(found.bound, found.objective);
  EXPECT_NEAR(found.objective, oracle_balance(small, found.cluster_of), tolerance(optimum));
  // Some assignment of the clusters to ranks obeys every rule. With free sizes, the one that takes each
  // cluster's number as its rank does.
  EXPECT_FALSE(std::isinf(best_pairs(small, found.cluster_of)));
  if (small.sizes == ClusterSizes::free) {
    EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
  }
}

TEST_F(ExactOnSmallProblems, ClustersAreTheBestThereAreAndSoByTheProgramAlone) {
  for_cases(0, 300, [](const SmallProblem& small) { check_clusters(small, {}); });
  for_cases(1000, 1150, [](const SmallProblem& small) { check_clusters(small, {.subsets = false}); });
}

void check_ranks(const SmallProblem& small, const internal::Methods& methods) {
  const PlacementProblem problem = small.problem();
  Clustering clustering;
  try {
    clustering = cluster_exact(problem, {}, {});
  } catch (const Infeasible&) {
    return;
  }
  const double optimum = best_pairs(small, clustering.cluster_of);
  const RankAssignment found = internal::assign_ranks_exact(problem, clustering, {}, {}, methods);
  expect_best(found, optimum, tolerance(optimum));
  EXPECT_LE(found.bound, found.objective);
  const Homes homes = homes_of(clustering, found);
  EXPECT_NEAR(found.objective, oracle_pairs(small, homes), tolerance(optimum));
  EXPECT_EQ(oracle_fault(small, homes), "");
}

TEST_F(ExactOnSmallProblems, RanksAreTheBestThereAreAndSoByOneProgramForAllLayers) {
  for_cases(2000, 2300, [](const SmallProblem& small) { check_ranks(small, {}); });
  for_cases(3000, 3150,
            [](const SmallProblem& small) { check_ranks(small, {.permutations = false, .alone = false}); });
}

TEST_F(ExactOnSmallProblems, HomesByPredictedTimeAreTheBestThereAre) {
  for_seeds(4000, 4150, [](std::mt19937_64& random, unsigned seed) {
    const SmallProblem small = random_case(
        random, seed % 2 == 0 ? MostOf{.experts = 4, .layers = 2} : MostOf{.experts = 4, .ranks = 2});
    SCOPED_TRACE(text_of(small));
    const PlacementProblem problem = small.problem();
    const double optimum = best_joint_ms(small);
    if (std::isinf(optimum)) {
      EXPECT_THROW(place_jointly_exact(problem, {}, {}), Infeasible);
      return;
    }
    const JointSolution found = place_jointly_exact(problem, {}, {});
    expect_best(found, optimum, tolerance(optimum));
    EXPECT_LE(found.bound_ms, found.objective_ms);
    EXPECT_EQ(oracle_fault(small, found.rank_of_expert), "");
    EXPECT_NEAR(found.objective_ms, oracle_joint_ms(small, found.rank_of_expert), tolerance(optimum));
  });
}

// If totals cannot be equal, some rank has one expert more; every stage must allow any rank to have the
// additional expert.
TEST_F(ExactOnSmallProblems, FreeSizesAreInfeasibleOnlyWhereNothingIsFeasible) {
  for_seeds(6000, 6300, [](std::mt19937_64& random, unsigned) {
    SmallProblem small = random_case(random);
    small.sizes = ClusterSizes::free;
    SCOPED_TRACE(text_of(small));
    const double optimum = best_balance(small);
    if (std::isinf(optimum)) return;
    const PlaceOptions options{.solver = PlaceOptions::Solver::exact,
                               .sizes = ClusterSizes::free,
                               .traffic = small.traffic,
                               .pairs = small.pairs,
                               .sources = small.sources};
    const PlaceResult placed = place(small.profile, small.topology, options);
    EXPECT_NEAR(placed.objective.at("balance"), optimum, tolerance(optimum));
  });
}

}  // namespace
}  // namespace evenkeel
