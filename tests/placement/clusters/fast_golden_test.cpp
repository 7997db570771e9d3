// The fast solvers against instances whose optima were proved by two other methods each.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;

Json instances() {
  std::ifstream file(EVENKEEL_SOURCE_DIR "/tests/data/moetuner.json");
  return Json::parse(file).at("instances");
}

RoutingProfile profile_of(const Json& instance) {
  std::vector<std::int64_t> loads;
  for (const auto& layer : instance.at("loads"))
    for (const auto& load : layer) loads.push_back(load.get<std::int64_t>());
  std::vector<std::int64_t> transitions;
  for (const auto& layer : instance.at("transitions"))
    for (const auto& row : layer)
      for (const auto& count : row) transitions.push_back(count.get<std::int64_t>());
  return {instance.at("num_layers").get<int>(), instance.at("num_experts").get<int>(), loads, transitions};
}

Clustering exact_clusters(const Json& instance) {
  Clustering clustering;
  for (const auto& layer : instance.at("ilp1").at("exact_clusters")) {
    clustering.cluster_of.emplace_back(instance.at("num_experts").get<std::size_t>());
    for (std::size_t cluster = 0; cluster < layer.size(); ++cluster)
      for (const auto& expert : layer[cluster])
        clustering.cluster_of.back()[expert.get<std::size_t>()] = static_cast<int>(cluster);
  }
  return clustering;
}

const SourceCounts no_sources;

TEST(FastGolden, ClustersOfEqualSizesHitEveryOptimumAndProveIt) {
  for (const Json& instance : instances()) {
    const RoutingProfile profile = profile_of(instance);
    const Topology topology = Topology::uniform(1, instance.at("num_gpus").get<int>());
    const Clustering found = cluster_fast({.profile = profile, .topology = topology, .sources = no_sources});
    EXPECT_DOUBLE_EQ(found.objective, instance.at("ilp1").at("exact_total").get<double>())
        << instance.at("name");
    EXPECT_TRUE(found.proven_optimal) << instance.at("name");
  }
}

TEST(FastGolden, ClustersOfFreeSizesOfOneLayerHitEveryOptimumAndProveIt) {
  for (const Json& instance : instances()) {
    const RoutingProfile profile = profile_of(instance);
    const auto ranks = instance.at("num_gpus").get<std::size_t>();
    for (LayerId layer : indices<LayerId>(profile.num_layers())) {
      const internal::PartitionTask task{.loads = profile.loads(layer),
                                         .least = std::vector<int>(ranks, 1),
                                         .most = std::vector<int>(ranks, profile.num_experts())};
      const internal::Partition found =
          internal::best_partition(task, std::int64_t{1} << 26, internal::Deadline(SolveLimits{}));
      const Json& golden = instance.at("ilp1").at("per_layer").at(layer.offset());
      EXPECT_EQ(static_cast<std::int64_t>(found.deviation),
                golden.at("at_least_one_times_G").get<std::int64_t>())
          << instance.at("name") << " layer " << layer.value();
      EXPECT_TRUE(found.proven());
    }
  }
}

// The published optima leave Eq. 13 out; with it, e8_g2_l4 cannot have its own. Found by trying all clusters
// of every layer, by sizes, and all ways to add sizes up.
double free_optimum(const Json& instance) {
  return instance.at("name") == "e8_g2_l4" ? 166 : instance.at("ilp1").at("at_least_one_total").get<double>();
}

TEST(FastGolden, ClustersOfFreeSizesHitEveryOptimumWithEqualTotalsAndProveIt) {
  for (const Json& instance : instances()) {
    const RoutingProfile profile = profile_of(instance);
    const Topology topology = Topology::uniform(1, instance.at("num_gpus").get<int>());
    const Clustering found = cluster_fast(
        {.profile = profile, .topology = topology, .sizes = ClusterSizes::free, .sources = no_sources});
    EXPECT_DOUBLE_EQ(found.objective, free_optimum(instance)) << instance.at("name");
    EXPECT_TRUE(found.proven_optimal) << instance.at("name");
  }
}

TEST(FastGolden, RanksHitEveryOptimumAndProveIt) {
  for (const Json& instance : instances()) {
    const RoutingProfile profile = profile_of(instance);
    const int ranks = instance.at("num_gpus").get<int>();
    const Clustering clustering = exact_clusters(instance);
    for (const char* links : {"uniform", "two_level"}) {
      if (!instance.at("ilp2").contains(links)) continue;
      const Topology topology = links == std::string("uniform")
                                    ? Topology::uniform(1, ranks)
                                    : Topology::uniform(2, ranks / 2, {4, 0}, {1, 0});
      for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total}) {
        const char* name = pairs == PairObjective::worst_pair ? "max" : "sum";
        const RankAssignment found = assign_ranks_fast(
            {.profile = profile, .topology = topology, .pairs = pairs, .sources = no_sources}, clustering);
        EXPECT_DOUBLE_EQ(found.objective, instance.at("ilp2").at(links).at(name).at("optimum").get<double>())
            << instance.at("name") << " " << links << " " << name;
        EXPECT_TRUE(found.proven_optimal);
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel
