// The fast solver on program 1 (clusters), compared with brute force.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "tests/placement/oracle.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

SmallShape random_shape(std::mt19937_64& random, int most_layers) {
  const int ranks = 1 + static_cast<int>(random() % 4);
  const int most_experts = ranks <= 2 ? 8 : 6;
  return {.layers = 1 + static_cast<int>(random() % static_cast<unsigned>(most_layers)),
          .experts = ranks + static_cast<int>(random() % static_cast<unsigned>(most_experts - ranks + 1)),
          .ranks = ranks};
}

double near(double value) {
  return 1e-12 * std::abs(value);
}

TEST(FastClusters, OfEqualSizesAreTheBestAndProvedSo) {
  for_seeds(0, 1500, [](std::mt19937_64& random, unsigned seed) {
    SmallProblem small = random_problem(random, random_shape(random, 2));
    if (seed % 3 == 0) give_capacities(random, small);
    const Clustering found = cluster_fast(small.problem());
    const double best = best_balance(small);
    EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
    EXPECT_NEAR(found.objective, oracle_balance(small, found.cluster_of), near(best));
    expect_best(found, best, near(best));
  });
}

TEST(FastClusters, OfFreeSizesAreTheBestWithEqualTotalsAndProvedSoUnlessCapacitiesDiffer) {
  for_seeds(0, 1500, [](std::mt19937_64& random, unsigned seed) {
    SmallProblem small = random_problem(random, random_shape(random, 3));
    const bool capacities = seed % 3 == 0;
    if (capacities) give_capacities(random, small);
    small.sizes = ClusterSizes::free;
    const Clustering found = cluster_fast(small.problem());
    const double best = best_balance(small);
    EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
    if (capacities)
      expect_enclosed(found, best, near(best));
    else
      expect_best(found, best, near(best));
  });
}

SmallProblem large_problem(std::mt19937_64& random, SmallShape shape) {
  SmallProblem small;
  std::normal_distribution<> normal;
  std::vector<std::int64_t> loads;
  for (int i = 0; i < shape.layers * shape.experts; ++i)
    loads.push_back(std::llround(2e4 * std::exp(normal(random))));
  small.profile = RoutingProfile(shape.layers, shape.experts, loads, {});
  small.topology = Topology::uniform(1, shape.ranks);
  return small;
}

// The objective as a fraction of the load in all layers.
double relative(const SmallProblem& small, double objective) {
  const auto loads = small.profile.loads();
  return objective / static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}));
}

TEST(FastClusters, OfLargeLayersAreWithinAThousandthOfTheLoadOfTheBound) {
  for (const SmallShape shape :
       {SmallShape{24, 32, 4}, SmallShape{10, 64, 8}, SmallShape{6, 256, 32}, SmallShape{6, 128, 8}})
    for (ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
      std::mt19937_64 random(7);
      SmallProblem small = large_problem(random, shape);
      small.sizes = sizes;
      const Clustering found = cluster_fast(small.problem());
      EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
      EXPECT_LE(found.bound, found.objective);
      EXPECT_LE(relative(small, found.objective - found.bound), 1e-3)
          << shape.experts << " experts, " << shape.ranks << " ranks";
    }
}

TEST(FastClusters, OfFreeSizesAreNoWorseThanOfEqualOnes) {
  for (const SmallShape shape : {SmallShape{1, 24, 8}, SmallShape{8, 32, 8}, SmallShape{5, 64, 16}}) {
    std::mt19937_64 random(11);
    SmallProblem small = large_problem(random, shape);
    const double equal = cluster_fast(small.problem()).objective;
    small.sizes = ClusterSizes::free;
    EXPECT_LE(cluster_fast(small.problem()).objective, equal);
  }
}

TEST(FastClusters, WithOneHeavyExpertReachTheBoundThatItSets) {
  SmallProblem small;
  std::vector<std::int64_t> loads(256);
  for (std::size_t e = 0; e < loads.size(); ++e) loads[e] = static_cast<std::int64_t>(e + 1);
  loads[100] = 50'000;
  small.profile = RoutingProfile(1, 256, loads, {});
  small.topology = Topology::uniform(1, 32);
  const Clustering found = cluster_fast(small.problem());
  // The cluster with the heavy expert and the seven lightest experts is above the mean; all other clusters
  // are below it.
  const double total = 128.0 * 257 - 101 + 50'000;
  EXPECT_DOUBLE_EQ(found.objective, 2 * (50'000 + 28 - total / 32));
  EXPECT_TRUE(found.proven_optimal);
}

TEST(FastClusters, AreTheSameEachTime) {
  std::mt19937_64 random(3);
  const SmallProblem small = large_problem(random, {6, 64, 8});
  EXPECT_EQ(cluster_fast(small.problem()).cluster_of, cluster_fast(small.problem()).cluster_of);
}

TEST(FastClusters, AreStillValidWhenThereIsNoTimeOrAStopIsAsked) {
  std::mt19937_64 random(3);
  for (ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
    SmallProblem small = large_problem(random, {6, 60, 8});
    small.sizes = sizes;
    std::stop_source stop;
    stop.request_stop();
    for (const SolveLimits& limits :
         {SolveLimits{.time_limit_s = 0}, SolveLimits{.stop = stop.get_token()}}) {
      const Clustering found = cluster_fast(small.problem(), limits);
      EXPECT_EQ(oracle_fault(small, found.cluster_of), "");
      EXPECT_LE(found.bound, found.objective);
    }
  }
}

TEST(FastClusters, TellTheirProgress) {
  std::mt19937_64 random(3);
  const SmallProblem small = large_problem(random, {2, 16, 4});
  int calls = 0;
  cluster_fast(small.problem(), {.progress = [&](double objective, double bound, double seconds) {
                 ++calls;
                 EXPECT_GE(objective, bound);
                 EXPECT_GE(seconds, 0);
               }});
  EXPECT_GE(calls, 1);
}

TEST(FastClusters, RefuseMoreExpertsThanSpaceAndOfFreeSizesFewerThanRanks) {
  SmallProblem small;
  small.profile = RoutingProfile(1, 9, false);
  small.topology = Topology({.node_of_rank = {0, 0}, .capacities = {4, 4}});
  EXPECT_THAT(message_of<Infeasible>([&] { cluster_fast(small.problem()); }),
              testing::HasSubstr("2 ranks have capacity for 8 experts a layer, and the model has 9"));
  small.profile = RoutingProfile(1, 3, false);
  small.topology = Topology::uniform(1, 4);
  small.sizes = ClusterSizes::free;
  EXPECT_THAT(message_of<Infeasible>([&] { cluster_fast(small.problem()); }),
              testing::HasSubstr("3 experts are too few for 4 ranks"));
}

}  // namespace
}  // namespace evenkeel
