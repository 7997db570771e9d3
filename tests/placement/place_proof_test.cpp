// Tests when place() claims a proof: if a gap is requested, if time ends the search, and if numbers are
// rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/place.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel {
namespace {

using Solver = PlaceOptions::Solver;
using Objective = PlaceOptions::Objective;

// Layers with 32 experts for which no solver proves optimal clusters within seconds, followed by layers with
// equal loads.
RoutingProfile hard_profile(int hard_layers, int layers) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> loads;
  for (int i = 0; i < 32 * hard_layers; ++i)
    loads.push_back(static_cast<std::int64_t>(random() % 100'000) + 1);
  loads.resize(static_cast<std::size_t>(32 * layers), 1);
  std::vector<std::int64_t> transitions;
  for (int i = 0; i < 32 * 32 * (layers - 1); ++i)
    transitions.push_back(static_cast<std::int64_t>(random() % 100));
  return {layers, 32, std::move(loads), std::move(transitions)};
}

bool has_note(const PlaceResult& placed, const std::string& part) {
  return std::ranges::any_of(placed.notes,
                             [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(PlaceProof, AGapThatWasAskedForCountsAsProvenAndEndsTheSearch) {
  const RoutingProfile profile = hard_profile(/*hard_layers=*/3, /*layers=*/3);
  const Topology topology = Topology::uniform(1, 8);
  ASSERT_FALSE(place(profile, topology).proven_optimal);
  std::vector<PlaceOptions> all = {{.limits = {.relative_gap = 0.999}},
                                   {.redundant_experts = 8, .limits = {.relative_gap = 0.999}},
                                   {.objective = Objective::joint, .limits = {.relative_gap = 0.999}}};
  if (has_exact_solver())
    for (const Objective objective : {Objective::two_stage, Objective::joint})
      all.push_back({.solver = Solver::exact, .objective = objective, .limits = {.relative_gap = 0.999}});
  for (const PlaceOptions& options : all) {
    const PlaceResult placed = place(profile, topology, options);
    EXPECT_TRUE(placed.proven_optimal);
    EXPECT_NE(placed.objective, placed.bound);
    EXPECT_TRUE(has_note(placed, "within the requested gap of 0.999"));
    EXPECT_LT(placed.solve_ms, 1000);
  }
}

// One layer that no solver proves within seconds, followed by layers that are trivial.
TEST(PlaceProof, ExactGivesHardLayersTheTimeThatOthersLeaveAndSaysThatTheLimitEndedIt) {
  if (!has_exact_solver()) GTEST_SKIP() << "built without the integer-program solver";
  const RoutingProfile profile = hard_profile(/*hard_layers=*/1, /*layers=*/8);
  const PlaceOptions options{.solver = Solver::exact, .limits = {.time_limit_s = 1.5}};
  const PlaceResult placed = place(profile, Topology::uniform(1, 8), options);
  ASSERT_FALSE(placed.proven_optimal);
  EXPECT_GE(placed.solve_ms, 1400);
  EXPECT_TRUE(placed.ended_by_time);
  EXPECT_TRUE(has_note(placed, "the time limit of 1.5 s ended the search"));
}

// The max/mean of 5/3 is not a double, so the bound is lowered to allow for rounding.
TEST(PlaceProof, WhatOnlyRoundingLeavesOpenIsProven) {
  const RoutingProfile profile(1, 2, {5, 1}, {});
  for (const PlaceResult& placed :
       {place(std::vector<RoutingProfile>{profile, profile}, Topology::uniform(1, 2)),
        place(profile, Topology::uniform(1, 2), {.num_groups = 2})}) {
    EXPECT_DOUBLE_EQ(placed.objective.at("max_over_mean"), 5.0 / 3);
    EXPECT_EQ(placed.bound, placed.objective);
    EXPECT_TRUE(placed.proven_optimal);
  }
}

}  // namespace
}  // namespace evenkeel
