// The device planner makes the same plan for every team size and every order in which lanes run.
#include <gtest/gtest.h>

#include "tests/balance/cases.h"
#include "tests/balance/cuda/fiber_teams.h"
// Must follow fiber_teams.h, whose overloads its templates need.
#include "tests/balance/cuda/host_plan.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;

FlatPlan plan_by_block(int lanes, std::uint64_t seed, const Counts& counts, const LayerPlacement& placement,
                       const PlannerOptions& options, std::span<const std::int64_t> base_load,
                       int most_borrowed) {
  FiberBlock block(lanes, seed);
  return plan_with([&](const auto& plan) { block.run([&] { plan(cuda::FiberTeam()); }); }, counts, placement,
                   options, base_load, most_borrowed);
}

Case random_small_case(std::mt19937_64& random, bool copies) {
  Case c = random_case(random, {.max_ranks = 20, .max_experts = 60, .copies = copies, .base_load = true});
  for (auto* loads : {&c.loads, &c.base_load})
    for (std::int64_t& load : *loads) load %= 1000000;
  return c;
}

// Loads concentrated in few experts, so that `level` needs many moves.
Case concentrated_case(std::mt19937_64& random, int experts, int ranks) {
  Case c;
  c.num_ranks = ranks;
  const int hot[] = {1, 4, 16};
  c.loads = concentrated(random, experts, 32768 * ranks, 0.05 * static_cast<double>(draw(random, 1, 19)),
                         hot[draw(random, 0, 2)], draw(random, 0, 1) == 0);
  for (int e = 0; e < experts; ++e) c.homes.push_back({e * ranks / experts});
  return c;
}

int compare(std::mt19937_64& random, const Case& c, int lanes) {
  const Counts counts = with_random_sources(random, c);
  const LayerPlacement placement = c.placement();
  const std::int64_t segments[] = {0, 1, 16, 500, 1024};
  int spilled = 0;
  for (Kind kind : {Kind::ep, Kind::least_loaded, Kind::level}) {
    const PlannerOptions options{kind, 1000, segments[draw(random, 0, 4)], 0};
    const int borrowed = draw(random, 0, 3) == 0 ? static_cast<int>(draw(random, 0, 6)) : cuda::kMostLoad;
    const FlatPlan expected = plan_on_host(counts, placement, options, c.base_load, borrowed);
    spilled += expected.num_transfers > 0;
    EXPECT_TRUE(plan_by_block(lanes, random(), counts, placement, options, c.base_load, borrowed) == expected)
        << lanes << " lanes, planner " << static_cast<int>(kind) << "\n"
        << c.text();
  }
  return spilled;
}

TEST(PlanningByManyLanes, GivesThePlanOfOneLane) {
  std::mt19937_64 random(11);
  const int lanes[] = {64, 256, 1024};
  int spilled = 0;
  for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i)
    spilled += compare(random, random_small_case(random, i % 3 == 1), lanes[i % 3]);
  EXPECT_GT(spilled, 60);
}

TEST(PlanningByManyLanes, GivesThePlanOfOneLaneForConcentratedLoads) {
  std::mt19937_64 random(12);
  int spilled = 0;
  for (int i = 0; i < 12 && !::testing::Test::HasFailure(); ++i)
    spilled += i % 3 == 2 ? compare(random, concentrated_case(random, 384, 64), 1024)
                          : compare(random, concentrated_case(random, 128, 8), 256);
  EXPECT_GT(spilled, 18);
}

}  // namespace
}  // namespace evenkeel::testing
