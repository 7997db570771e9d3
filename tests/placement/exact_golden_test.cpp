// The exact solvers against optima that others proved (tests/data/README.md), from a poor start.
#include <gmock/gmock.h>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/exact_partition.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/moetuner_instances.h"

namespace evenkeel {
namespace {

const SourceCounts no_sources;

class ExactOnGolden : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }
};

void expect_clusters(const MoetunerInstance& instance, ClusterSizes sizes, double optimum) {
  SCOPED_TRACE(instance.name);
  const Topology topology = instance.topology("uniform");
  const PlacementProblem problem{
      .profile = instance.profile, .topology = topology, .sizes = sizes, .sources = no_sources};
  const Clustering found = cluster_exact(problem, {}, {});
  EXPECT_DOUBLE_EQ(found.bound, found.objective);
  EXPECT_TRUE(found.proven_optimal);
  RankAssignment identity;
  for (int layer = 0; layer < instance.profile.num_layers(); ++layer) {
    auto& ranks = identity.rank_of.emplace_back();
    for (int cluster = 0; cluster < instance.num_ranks; ++cluster) ranks.push_back(cluster);
  }
  EXPECT_DOUBLE_EQ(balance_objective(problem, placement_of(found, identity, instance.num_ranks)),
                   found.objective);
  if (found.sizes_chosen_together)
    EXPECT_GE(found.objective, optimum);
  else
    EXPECT_DOUBLE_EQ(found.objective, optimum);
}

TEST_F(ExactOnGolden, ClustersOfEqualSizesAreOptimal) {
  for (const MoetunerInstance& instance : moetuner_instances())
    expect_clusters(instance, ClusterSizes::equal, instance.equal_optimum);
}

TEST_F(ExactOnGolden, ClustersOfFreeSizesAreOptimal) {
  for (const MoetunerInstance& instance : moetuner_instances())
    expect_clusters(instance, ClusterSizes::free, instance.free_optimum);
}

// The optima of at least one expert a cluster, which Eq. 13 may put out of reach for all layers together.
void expect_layers(ClusterSizes sizes, bool by_program, int most_experts) {
  for (const MoetunerInstance& instance : moetuner_instances()) {
    if (instance.profile.num_experts() > most_experts) continue;
    const Topology topology = instance.topology("uniform");
    const PlacementProblem problem{
        .profile = instance.profile, .topology = topology, .sizes = sizes, .sources = no_sources};
    const internal::SizeRule rule = internal::size_rule(problem);
    const internal::Deadline deadline({});
    for (LayerId layer : indices<LayerId>(instance.profile.num_layers())) {
      SCOPED_TRACE(instance.name + ", layer " + std::to_string(layer.value()));
      const auto loads = instance.profile.loads(layer);
      internal::ExactPartition partition{.cluster_of = internal::contiguous_clusters(rule).front()};
      partition.deviation = internal::deviation_of(loads, partition.cluster_of, instance.num_ranks);
      if (by_program)
        internal::partition_by_program(loads, rule, 60, deadline, partition);
      else
        internal::partition_by_subsets(loads, rule, deadline, partition);
      const auto& optima = sizes == ClusterSizes::equal ? instance.equal_by_layer : instance.free_by_layer;
      EXPECT_DOUBLE_EQ(partition.deviation, optima[layer.offset()] * instance.num_ranks);
      EXPECT_DOUBLE_EQ(partition.bound, partition.deviation);
    }
  }
}

TEST_F(ExactOnGolden, SubsetsFindEveryOptimumOfALayer) {
  expect_layers(ClusterSizes::equal, /*by_program=*/false, 16);
  expect_layers(ClusterSizes::free, /*by_program=*/false, 16);
}

TEST_F(ExactOnGolden, TheProgramFindsEveryOptimumOfASmallLayer) {
  expect_layers(ClusterSizes::equal, /*by_program=*/true, 8);
  expect_layers(ClusterSizes::free, /*by_program=*/true, 8);
}

void expect_ranks(const MoetunerInstance& instance, const std::string& links, PairObjective pairs,
                  const internal::Methods& methods) {
  SCOPED_TRACE(instance.name + ", " + links);
  const Topology topology = instance.topology(links);
  const PlacementProblem problem{
      .profile = instance.profile, .topology = topology, .pairs = pairs, .sources = no_sources};
  const RankAssignment found = internal::assign_ranks_exact(problem, instance.clusters, {}, {}, methods);
  const double optimum = instance.rank_optimum(links, pairs);
  EXPECT_NEAR(found.objective, optimum, 1e-9 * optimum);
  EXPECT_NEAR(pair_objective(problem, placement_of(instance.clusters, found, instance.num_ranks)), optimum,
              1e-9 * optimum);
  EXPECT_DOUBLE_EQ(found.bound, found.objective);
  EXPECT_TRUE(found.proven_optimal);
}

TEST_F(ExactOnGolden, RanksAreOptimalForEveryLinkAndObjective) {
  for (const MoetunerInstance& instance : moetuner_instances())
    for (const char* links : {"uniform", "two_level"})
      for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total})
        if (instance.ranks.contains(links)) expect_ranks(instance, links, pairs, {});
}

TEST_F(ExactOnGolden, OneProgramForAllLayersFindsTheSameRanks) {
  for (const MoetunerInstance& instance : moetuner_instances())
    for (const char* links : {"uniform", "two_level"})
      for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total})
        if (instance.ranks.contains(links) && instance.profile.num_layers() <= 2)
          expect_ranks(instance, links, pairs, {.permutations = false, .alone = false});
}

}  // namespace
}  // namespace evenkeel
