#include "evenkeel/placement/as_served.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "evenkeel/placement/place.h"
#include "evenkeel/placement/replicas/every_node.h"

namespace evenkeel {
namespace {

RoutingProfile lognormal_profile(int layers, int experts, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> load(10, 1);
  std::vector<std::int64_t> loads;
  for (int i = 0; i < layers * experts; ++i) loads.push_back(static_cast<std::int64_t>(load(random)));
  return RoutingProfile(layers, experts, std::move(loads), {});
}

TEST(PlaceForDispatch, NodesKeepTheirCopiesSoThatNearestIsAsLevelAsEven) {
  const RoutingProfile profile = lognormal_profile(3, 64, 1);
  const Topology topology = Topology::uniform(2, 16);
  const PlaceResult even = place(profile, topology, {.redundant_experts = 64});
  const PlaceResult nearest =
      place(profile, topology, {.redundant_experts = 64, .dispatch = Dispatch::nearest});
  EXPECT_GT(placement_quality(profile, topology, even.placement, Dispatch::nearest).max_over_mean_mean, 1.1);
  EXPECT_LT(nearest.after.max_over_mean_mean, 1.01);
  EXPECT_DOUBLE_EQ(nearest.objective.at("max_over_mean"), nearest.after.max_over_mean_mean);
}

TEST(PlaceForDispatch, RanksAreRenamedUntilTheDrawsFallWell) {
  const RoutingProfile profile = lognormal_profile(3, 64, 2);
  const Topology topology = Topology::uniform(1, 8);
  const PlaceResult even = place(profile, topology, {.redundant_experts = 32});
  const PlaceResult drawn = place(profile, topology, {.redundant_experts = 32, .dispatch = Dispatch::fixed});
  const double by_chance =
      placement_quality(profile, topology, even.placement, Dispatch::fixed).max_over_mean_mean;
  EXPECT_LT(drawn.after.max_over_mean_mean, by_chance);
  EXPECT_NEAR(placement_quality(profile, topology, drawn.placement).max_over_mean_mean,
              even.after.max_over_mean_mean, 1e-12);
}

// For random shapes, every slot is filled and the hottest experts are exactly once on every node, so that no
// copy of them is chosen at random.
TEST(ReplicateOnEveryNode, PutsTheHottestExpertsOnceOnEachNode) {
  std::mt19937 random(4);
  int solved = 0;
  for (int round = 0; round < 200; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 3);
    const int ranks = nodes * (2 + static_cast<int>(random() % 3));
    const int experts = 8 + static_cast<int>(random() % 24);
    const int physical = (experts / ranks + 1 + static_cast<int>(random() % 3)) * ranks;
    std::vector<double> loads;
    for (int e = 0; e < experts; ++e) loads.push_back(1.0 + static_cast<double>(random() % 1000));
    const ReplicaProblem problem{.num_layers = 1,
                                 .num_experts = experts,
                                 .loads = loads,
                                 .num_physical = physical,
                                 .num_ranks = ranks,
                                 .num_nodes = nodes};
    const auto solution = replicate_on_every_node(problem);
    if (!solution) continue;
    ++solved;
    const Placement placement = placement_of(*solution, experts);  // also: no rank has an expert twice
    const Topology topology = Topology::uniform(nodes, ranks / nodes);
    const int everywhere = (physical - experts) / (nodes - 1);
    std::vector<int> by_load(static_cast<std::size_t>(experts));
    std::iota(by_load.begin(), by_load.end(), 0);
    std::ranges::stable_sort(by_load, std::greater{},
                             [&](int e) { return loads[static_cast<std::size_t>(e)]; });
    for (int i = 0; i < everywhere; ++i) {
      const auto homes = placement.layer(0).homes(ExpertId(by_load[static_cast<std::size_t>(i)]));
      std::vector<int> on;
      for (RankId rank : homes) on.push_back(topology.node_of(rank).value());
      for (int node = 0; node < nodes; ++node) EXPECT_GE(std::ranges::count(on, node), 1) << round;
    }
    for (RankId rank : indices<RankId>(ranks))
      EXPECT_EQ(std::ssize(placement.layer(0).natives(rank)), physical / ranks) << round;
  }
  EXPECT_GT(solved, 100);
}

TEST(PlaceForDispatch, WithoutCopiesEveryRuleIsTheSame) {
  const RoutingProfile profile = lognormal_profile(2, 32, 3);
  const Topology topology = Topology::uniform(2, 4);
  const Placement even = place(profile, topology).placement;
  for (const Dispatch dispatch : dispatches) {
    const PlaceResult placed = place(profile, topology, {.dispatch = dispatch});
    for (int layer = 0; layer < 2; ++layer) EXPECT_EQ(placed.placement.layer(layer), even.layer(layer));
    EXPECT_EQ(placed.bound, place(profile, topology).bound);
  }
}

}  // namespace
}  // namespace evenkeel
