// The fast solver on program 2 (ranks), compared with brute force.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/oracle.h"

namespace evenkeel {
namespace {

// Shapes small enough for brute force: (P!)^L is at most 13,824.
SmallShape random_shape(std::mt19937_64& random) {
  const int ranks = 1 + static_cast<int>(random() % 4);
  const int layers = ranks == 4 ? 2 : 1 + static_cast<int>(random() % 4);
  return {.layers = layers, .experts = ranks + static_cast<int>(random() % 5), .ranks = ranks};
}

double near(double value) {
  return 1e-9 * (1 + std::abs(value));
}

// Assigns ranks to the fast solver's clusters and checks the rules. `best` is set to the optimum.
RankAssignment assign(const SmallProblem& small, double& best) {
  const Clustering clustering = cluster_fast(small.problem());
  const RankAssignment found = assign_ranks_fast(small.problem(), clustering);
  const Homes homes = homes_of(clustering, found);
  best = best_pairs(small, clustering.cluster_of);
  EXPECT_EQ(oracle_fault(small, homes), "");
  EXPECT_NEAR(found.objective, oracle_pairs(small, homes), near(found.objective));
  return found;
}

void expect_best_ranks(const SmallProblem& small) {
  double best = 0;
  const RankAssignment found = assign(small, best);
  expect_best(found, best, near(best));
}

bool expect_enclosed_ranks(const SmallProblem& small) {
  double best = 0;
  const RankAssignment found = assign(small, best);
  return expect_enclosed(found, best, near(best));
}

TEST(FastRanks, OfUpToFourRanksAreTheBestAndProvedSo) {
  for_seeds(0, 2000, [](std::mt19937_64& random, unsigned) {
    expect_best_ranks(random_problem(random, random_shape(random)));
  });
}

TEST(FastRanks, WithUnlikeCapacitiesAreTheBestThatFit) {
  for_seeds(0, 500, [](std::mt19937_64& random, unsigned) {
    SmallProblem small = random_problem(random, {2, 7, 3});
    Topology::Description description = small.topology.description();
    description.capacities = {2, 4, 3};
    small.topology = Topology(description);
    expect_best_ranks(small);
  });
}

TEST(FastRanks, OfFreeSizesHoldTotalsAndAreBoundedFromBelow) {
  int best_found = 0;
  for_seeds(0, 1000, [&](std::mt19937_64& random, unsigned) {
    SmallProblem small = random_problem(random, random_shape(random));
    small.sizes = ClusterSizes::free;
    best_found += expect_enclosed_ranks(small);
  });
  EXPECT_GE(best_found, 880);
}

// More ranks than the dynamic program handles, but few enough layers for brute force.
TEST(FastRanks, OfFiveRanksWithUnlikeLinksAreBoundedFromBelowAndMostlyTheBest) {
  int best_found = 0;
  for_seeds(0, 60, [&](std::mt19937_64& random, unsigned) {
    SmallProblem small = random_problem(random, {2, 5, 5});
    small.traffic = TrafficModel::layer_to_layer;
    small.topology = Topology({.node_of_rank = {0, 0, 0, 1, 1}, .within = {4, 0}, .across = {1, 0}});
    best_found += expect_enclosed_ranks(small);
  });
  EXPECT_GE(best_found, 28);
}

SmallProblem large_problem(std::mt19937_64& random, SmallShape shape, const Topology& topology) {
  SmallProblem small;
  const auto count = static_cast<std::size_t>(shape.experts) * static_cast<std::size_t>(shape.experts);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(shape.layers * shape.experts), 100);
  std::vector<std::int64_t> transitions;
  std::normal_distribution<> normal;
  for (std::size_t i = 0; i < count * static_cast<std::size_t>(shape.layers - 1); ++i)
    transitions.push_back(std::llround(100 * std::exp(normal(random))));
  small.profile = RoutingProfile(shape.layers, shape.experts, loads, transitions);
  small.topology = topology;
  return small;
}

TEST(FastRanks, OfManyRanksAreBetterThanNumbersInOrderAndNotBelowTheirBound) {
  std::mt19937_64 random(5);
  for (const Topology& topology : {Topology::uniform(1, 16), Topology::uniform(4, 4, {4, 0}, {1, 0})})
    for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total}) {
      SmallProblem small = large_problem(random, {6, 64, 16}, topology);
      small.pairs = pairs;
      const Clustering clustering = cluster_fast(small.problem());
      const RankAssignment found = assign_ranks_fast(small.problem(), clustering);
      EXPECT_LT(found.objective, oracle_pairs(small, clustering.cluster_of));
      EXPECT_NEAR(found.objective, oracle_pairs(small, homes_of(clustering, found)), near(found.objective));
      EXPECT_LE(found.bound, found.objective);
      EXPECT_GT(found.bound, 0);
    }
}

TEST(FastRanks, AreNotFooledByClustersThatHideAPerfectPairing) {
  // Cluster c sends everything to cluster P-1-c of the next layer. If both are on one rank, nothing crosses.
  const int P = 8;
  std::vector<std::int64_t> transitions(static_cast<std::size_t>(P * P * 3), 0);
  for (int layer = 0; layer < 3; ++layer)
    for (int e = 0; e < P; ++e)
      transitions[static_cast<std::size_t>((layer * P + e) * P + P - 1 - e)] = 10 + e;
  SmallProblem small;
  small.profile =
      RoutingProfile(4, P, std::vector<std::int64_t>(static_cast<std::size_t>(4 * P), 1), transitions);
  const Clustering clustering{.cluster_of = Homes(4, {0, 1, 2, 3, 4, 5, 6, 7})};
  for (const Topology& topology : {Topology::uniform(1, P), Topology::uniform(2, 4, {4, 0}, {1, 0})}) {
    small.topology = topology;
    const RankAssignment found = assign_ranks_fast(small.problem(), clustering);
    EXPECT_EQ(found.objective, 0);
    EXPECT_TRUE(found.proven_optimal);
  }
}

TEST(FastRanks, AreValidWhenThereIsNoTime) {
  std::mt19937_64 random(5);
  SmallProblem small = large_problem(random, {4, 32, 8}, Topology::uniform(2, 4, {4, 0}, {1, 0}));
  for (ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
    small.sizes = sizes;
    const Clustering clustering = cluster_fast(small.problem());
    const RankAssignment found = assign_ranks_fast(small.problem(), clustering, {.time_limit_s = 0});
    EXPECT_EQ(oracle_fault(small, homes_of(clustering, found)), "");
    EXPECT_LE(found.bound, found.objective);
  }
}

std::string refusal(const SmallProblem& small, const Clustering& clustering) {
  try {
    assign_ranks_fast(small.problem(), clustering);
  } catch (const Error& error) {
    return error.type() + ": " + error.what();
  }
  return "nothing was thrown";
}

TEST(FastRanks, RefuseClustersOfAnotherShape) {
  std::mt19937_64 random(1);
  const SmallProblem small = large_problem(random, {2, 4, 2}, Topology::uniform(1, 2));
  EXPECT_THAT(refusal(small, {.cluster_of = {{0, 0, 1, 1}}}),
              testing::AllOf(testing::StartsWith("InvalidArgument"), testing::HasSubstr("has 1 layers")));
  EXPECT_THAT(refusal(small, {.cluster_of = {{0, 0, 1, 1}, {0, 1, 1}}}),
              testing::HasSubstr("has 3 experts in layer 1"));
  EXPECT_THAT(refusal(small, {.cluster_of = {{0, 0, 1, 1}, {0, 2, 1, 1}}}),
              testing::AllOf(testing::HasSubstr("has cluster 2 in layer 1"), testing::HasSubstr("0..1")));
}

TEST(FastRanks, RefuseAProfileWithoutTheTrafficAskedFor) {
  SmallProblem small;
  small.profile = RoutingProfile(2, 4, false);
  small.topology = Topology::uniform(1, 2);
  const Clustering clustering{.cluster_of = Homes(2, {0, 0, 1, 1})};
  EXPECT_THAT(refusal(small, clustering), testing::HasSubstr("has no transitions"));
  small.traffic = TrafficModel::dispatch_combine;
  EXPECT_THAT(refusal(small, clustering), testing::HasSubstr("have 0 layers, 0 ranks and 0 experts"));
  small.sources = {.num_layers = 2, .num_ranks = 2, .num_experts = 4, .counts = std::vector<double>(16, 1.0)};
  small.sources.counts[3] = -2;
  EXPECT_THAT(refusal(small, clustering), testing::HasSubstr("have a count of -2"));
}

TEST(FastRanks, RefuseClustersThatNoRanksCanHold) {
  std::mt19937_64 random(1);
  SmallProblem small = large_problem(random, {2, 4, 2}, Topology::uniform(1, 2));
  small.sizes = ClusterSizes::free;  // totals must be 4 and 4, impossible with sizes 3 + 1 and 2 + 2
  EXPECT_THAT(refusal(small, {.cluster_of = {{0, 0, 0, 1}, {0, 0, 1, 1}}}),
              testing::AllOf(testing::StartsWith("Infeasible"), testing::HasSubstr("Eq. 13")));
  small.sizes = ClusterSizes::equal;
  small.topology = Topology({.node_of_rank = {0, 0}, .capacities = {2, 2}});
  EXPECT_THAT(refusal(small, {.cluster_of = {{0, 0, 0, 1}, {0, 0, 1, 1}}}),
              testing::AllOf(testing::StartsWith("Infeasible"), testing::HasSubstr("capacity")));
}

// On many ranks, costs are computed per level for two-level links, and per link for a link matrix.
TEST(FastRanks, OfManyRanksCostsTheSameHoweverLinksAreSaid) {
  constexpr int ranks = 256;
  std::mt19937_64 random(19);
  Topology::Description levels{.within = {450, 0}, .across = {50, 0}};
  for (int rank = 0; rank < ranks; ++rank) levels.node_of_rank.push_back(static_cast<int>(random() % 32));
  for (int node = 0; node < 32; ++node) levels.node_of_rank[static_cast<std::size_t>(8 * node)] = node;
  Topology::Description matrix = levels;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      matrix.links.push_back(levels.node_of_rank[static_cast<std::size_t>(from)] ==
                                     levels.node_of_rank[static_cast<std::size_t>(to)]
                                 ? levels.within
                                 : levels.across);
  SourceCounts sources{.num_layers = 1, .num_ranks = ranks, .num_experts = ranks};
  for (int i = 0; i < ranks * ranks; ++i) sources.counts.push_back(static_cast<double>(random() % 1000));
  const RoutingProfile profile(1, ranks, std::vector<std::int64_t>(ranks, 1), {});
  Clustering clusters{.cluster_of = std::vector<std::vector<int>>(1, std::vector<int>(ranks))};
  std::iota(clusters.cluster_of[0].begin(), clusters.cluster_of[0].end(), 0);
  for (const PairObjective pairs : {PairObjective::worst_pair, PairObjective::total}) {
    const auto cost_on = [&](const Topology& topology) {
      return assign_ranks_fast({.profile = profile,
                                .topology = topology,
                                .traffic = TrafficModel::dispatch_combine,
                                .pairs = pairs,
                                .sources = sources},
                               clusters)
          .objective;
    };
    const double by_level = cost_on(Topology(levels));
    EXPECT_NEAR(by_level, cost_on(Topology(matrix)), 1e-9 * by_level);
  }
}

}  // namespace
}  // namespace evenkeel
