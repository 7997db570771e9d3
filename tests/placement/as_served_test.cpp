#include "evenkeel/placement/as_served.h"

#include <gtest/gtest.h>

#include <random>

#include "evenkeel/placement/place.h"

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
