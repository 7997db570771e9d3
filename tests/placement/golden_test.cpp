// Both solvers, without a start, compared with optima that two other methods proved (tests/data/README.md).
#include <gmock/gmock.h>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/exact_partition.h"
#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/moetuner_instances.h"

namespace evenkeel {
namespace {

const SourceCounts no_sources;

class ExactGolden : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }
};

// Runs with the exact solver (true) or the fast one (false).
class Golden : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }
  static Clustering clusters(const PlacementProblem& problem) {
    return GetParam() ? cluster_exact(problem, {}, {}) : cluster_fast(problem);
  }
  static RankAssignment ranks(const PlacementProblem& problem, const Clustering& clusters) {
    return GetParam() ? assign_ranks_exact(problem, clusters, {}, {}) : assign_ranks_fast(problem, clusters);
  }
};
INSTANTIATE_TEST_SUITE_P(, Golden, testing::Bool(),
                         [](const auto& exact) { return exact.param ? "Exact" : "Fast"; });

// The published optima ignore Eq. 13. With Eq. 13, the published optimum of e8_g2_l4 is infeasible. The
// optimum used here was found by trying all clusters of every layer for each size, and all combinations of
// sizes.
double optimum_of(const MoetunerInstance& instance, ClusterSizes sizes) {
  if (sizes == ClusterSizes::equal) return instance.equal_optimum;
  return instance.name == "e8_g2_l4" ? 166 : instance.free_optimum;
}

RankAssignment identity(const MoetunerInstance& instance) {
  std::vector<int> ranks;
  for (int rank = 0; rank < instance.num_ranks; ++rank) ranks.push_back(rank);
  const auto layers = static_cast<std::size_t>(instance.profile.num_layers());
  return {.rank_of = std::vector<std::vector<int>>(layers, ranks)};
}

TEST_P(Golden, ClustersHitEveryOptimumAndProveIt) {
  for (const MoetunerInstance& instance : moetuner_instances())
    for (const ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
      SCOPED_TRACE(instance.name);
      const Topology topology = instance.topology("uniform");
      const PlacementProblem problem{
          .profile = instance.profile, .topology = topology, .sizes = sizes, .sources = no_sources};
      const Clustering found = clusters(problem);
      EXPECT_DOUBLE_EQ(found.objective, optimum_of(instance, sizes));
      EXPECT_DOUBLE_EQ(found.bound, found.objective);
      EXPECT_TRUE(found.proven_optimal);
      const Placement placement = placement_of(found, identity(instance), instance.num_ranks);
      EXPECT_DOUBLE_EQ(balance_objective(problem, placement), found.objective);
    }
}

// Calls `check` for every instance with at most `most_layers` layers, both kinds of links and both
// objectives.
template <class Check>
void for_rank_problems(int most_layers, Check check) {
  for (const MoetunerInstance& instance : moetuner_instances())
    for (const char* links : {"uniform", "two_level"})
      for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total}) {
        if (!instance.ranks.contains(links) || instance.profile.num_layers() > most_layers) continue;
        SCOPED_TRACE(instance.name + ", " + links);
        const Topology topology = instance.topology(links);
        check({.profile = instance.profile, .topology = topology, .pairs = pairs, .sources = no_sources},
              instance, instance.rank_optimum(links, pairs));
      }
}

void expect_optimal(const PlacementProblem& problem, const MoetunerInstance& instance,
                    const RankAssignment& found, double optimum) {
  EXPECT_NEAR(found.objective, optimum, 1e-9 * optimum);
  EXPECT_NEAR(pair_objective(problem, placement_of(instance.clusters, found, instance.num_ranks)), optimum,
              1e-9 * optimum);
  EXPECT_DOUBLE_EQ(found.bound, found.objective);
  EXPECT_TRUE(found.proven_optimal);
}

TEST_P(Golden, RanksHitEveryOptimumAndProveIt) {
  for_rank_problems(99,
                    [](const PlacementProblem& problem, const MoetunerInstance& instance, double optimum) {
                      expect_optimal(problem, instance, ranks(problem, instance.clusters), optimum);
                    });
}

TEST_F(ExactGolden, OneProgramForAllLayersFindsTheSameRanks) {
  for_rank_problems(2, [](const PlacementProblem& problem, const MoetunerInstance& instance, double optimum) {
    const internal::Methods by_program{.permutations = false, .alone = false};
    const auto found = internal::assign_ranks_exact(problem, instance.clusters, {}, {}, by_program);
    expect_optimal(problem, instance, found, optimum);
  });
}

// Compares single layers with their optima. With free sizes, these optima require one expert per cluster, but
// not Eq. 13, which couples the layers.
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

TEST_F(ExactGolden, SubsetsAndOfSmallLayersTheProgramFindEveryOptimumOfALayer) {
  for (const ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
    expect_layers(sizes, /*by_program=*/false, 16);
    expect_layers(sizes, /*by_program=*/true, 8);
  }
}

TEST(FastGolden, ClustersOfFreeSizesOfOneLayerHitEveryOptimumAndProveIt) {
  for (const MoetunerInstance& instance : moetuner_instances()) {
    const auto ranks = static_cast<std::size_t>(instance.num_ranks);
    for (LayerId layer : indices<LayerId>(instance.profile.num_layers())) {
      const internal::PartitionTask task{.loads = instance.profile.loads(layer),
                                         .least = std::vector<int>(ranks, 1),
                                         .most = std::vector<int>(ranks, instance.profile.num_experts())};
      const internal::Partition found =
          internal::best_partition(task, std::int64_t{1} << 26, internal::Deadline(SolveLimits{}));
      EXPECT_DOUBLE_EQ(static_cast<double>(found.deviation),
                       instance.free_by_layer[layer.offset()] * instance.num_ranks)
          << instance.name << " layer " << layer.value();
      EXPECT_TRUE(found.proven());
    }
  }
}

}  // namespace
}  // namespace evenkeel
