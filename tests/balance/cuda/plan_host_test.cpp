// The device planner, run on the host, makes exactly the plans of balance/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "evenkeel/balance/level.h"
#include "evenkeel/balance/planner.h"
#include "tests/balance/cases.h"
#include "tests/balance/cuda/host_plan.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;
using Json = nlohmann::json;

// Scales loads down to at most 2^30 assignments, the device planner's limit per step.
Case small_enough(Case c) {
  std::int64_t most = 1;
  for (std::int64_t load : c.loads) most = std::max(most, load);
  for (std::int64_t load : c.base_load) most = std::max(most, load);
  const std::int64_t parts = static_cast<std::int64_t>(c.loads.size() + c.base_load.size());
  const std::int64_t divisor = most / (cuda::kMostLoad / (parts + 1)) + 1;
  for (std::int64_t& load : c.loads) load /= divisor;
  for (std::int64_t& load : c.base_load) load /= divisor;
  return c;
}

struct Tally {
  int planned = 0;
  int spilled = 0;
};

void expect_same(const Counts& counts, const Case& c, const PlannerOptions& options, Tally& tally) {
  const LayerPlacement placement = c.placement();
  StepPlan expected;
  make_planner(options)->plan(counts, placement, expected, c.base_load);
  ++tally.planned;
  tally.spilled += expected.spilled();
  ASSERT_TRUE(plan_on_host(counts, placement, options, c.base_load) == flat(expected, placement));
}

void compare(std::uint64_t seed, int cases, const CaseLimits& limits, int least_spilled) {
  std::mt19937_64 random(seed);
  Tally tally;
  const std::int64_t segments[] = {0, 1, 2, 3, 16, 64, 500, 1024, std::int64_t{1} << 40};
  const std::int64_t factors[] = {1000, 1001, 1100, 1500, 4000, std::int64_t{1} << 50};
  const std::int64_t thresholds[] = {0, 0, 1000, 1100, 1300, 3000, std::int64_t{1} << 60};
  for (int i = 0; i < cases; ++i) {
    const Case c = small_enough(random_case(random, limits));
    const Counts counts = with_random_sources(random, c);
    for (Kind kind : {Kind::ep, Kind::least_loaded, Kind::level}) {
      const PlannerOptions options{kind, factors[draw(random, 0, 5)], segments[draw(random, 0, 8)],
                                   thresholds[draw(random, 0, 6)]};
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << " case " << i << " planner " << static_cast<int>(kind) << " alpha "
                   << options.capacity_factor_thousandths << " m " << options.min_segment << " lambda "
                   << options.imbalance_threshold_thousandths << " " << c.text());
      ASSERT_NO_FATAL_FAILURE(expect_same(counts, c, options, tally));
    }
  }
  EXPECT_EQ(tally.planned, 3 * cases);
  EXPECT_GT(tally.spilled, least_spilled);
}

TEST(CudaPlan, HasTheIntegersOfTheHostsPlannersOnRandomLoads) {
  compare(1, 20000, {.max_ranks = 12, .max_experts = 40, .base_load = true}, 5000);
}

TEST(CudaPlan, HasTheIntegersOfTheHostsPlannersWithRedundantExperts) {
  compare(2, 10000, {.max_ranks = 10, .max_experts = 40, .copies = true, .base_load = true}, 2000);
}

TEST(CudaPlan, HasTheIntegersOfTheHostsPlannersOnManyRanksAndExperts) {
  compare(3, 600, {.max_ranks = 64, .max_experts = 384}, 150);
}

TEST(CudaPlan, HasTheIntegersOfTheHostsPlannersWhereLoadsAreConcentrated) {
  std::mt19937_64 random(4);
  Tally tally;
  for (int i = 0; i < 1500; ++i) {
    const int ranks = i % 3 == 0 ? 64 : 8;
    const int experts = ranks == 64 ? 384 : 128;
    const double share = 0.05 * static_cast<double>(draw(random, 0, 19));
    const int hot[] = {1, 4, 16};
    Case c;
    c.num_ranks = ranks;
    c.loads = concentrated(random, experts, draw(random, 0, 1) == 0 ? 262144 : 262143, share,
                           hot[draw(random, 0, 2)], draw(random, 0, 1) == 0);
    for (int e = 0; e < experts; ++e)
      c.homes.push_back({static_cast<int>(std::int64_t{e} * ranks / experts)});
    const Counts counts = with_random_sources(random, c);
    for (Kind kind : {Kind::least_loaded, Kind::level}) {
      const std::int64_t segments[] = {1, 64, 1024};
      SCOPED_TRACE(::testing::Message() << "case " << i << " planner " << static_cast<int>(kind));
      ASSERT_NO_FATAL_FAILURE(expect_same(counts, c, {kind, 1000, segments[draw(random, 0, 2)], 0}, tally));
    }
  }
  EXPECT_GT(tally.spilled, 2500);
}

TEST(CudaPlan, GivesWayToPlainEpWhereARankWouldBorrowMoreThanItHasPlacesFor) {
  std::mt19937_64 random(6);
  int ways[2] = {0, 0};
  for (int i = 0; i < 3000; ++i) {
    const Case c = small_enough(random_case(random, {.copies = i % 3 == 0}));
    const Counts counts = with_random_sources(random, c);
    const PlannerOptions options{i % 2 == 0 ? Kind::least_loaded : Kind::level, 1000, draw(random, 1, 9), 0};
    const LayerPlacement placement = c.placement();
    const auto places = static_cast<int>(draw(random, 0, 3));
    const FlatPlan free = plan_on_host(counts, placement, options);
    std::vector<int> borrowed(static_cast<std::size_t>(c.num_ranks));
    for (int t = 0; t < free.num_transfers; ++t)
      ++borrowed[static_cast<std::size_t>(free.transfer_to[static_cast<std::size_t>(t)])];
    const bool too_many = *std::ranges::max_element(borrowed) > places;
    FlatPlan expected = too_many ? plan_on_host(counts, placement, {Kind::ep}) : free;
    expected.fell_back_to_ep = too_many;
    const FlatPlan plan = plan_on_host(counts, placement, options, {}, places);
    ASSERT_EQ(plan.num_transfers, expected.num_transfers) << c.text();
    ASSERT_EQ(plan.fell_back_to_ep, expected.fell_back_to_ep) << c.text();
    ASSERT_EQ(plan.rank_loads, expected.rank_loads) << c.text();
    ASSERT_EQ(plan.segment_begin, expected.segment_begin) << c.text();
    ++ways[too_many];
  }
  EXPECT_GT(ways[0], 300);
  EXPECT_GT(ways[1], 300);
}

TEST(CudaPlan, IsThatOfThePublishedCases) {
  const Json file = Json::parse(std::ifstream(EVENKEEL_SOURCE_DIR "/tests/data/llep_assignment.json"));
  std::mt19937_64 random(5);
  Tally tally;
  for (const Json& each : file.at("cases")) {
    Case c;
    c.loads = each.at("loads").get<std::vector<std::int64_t>>();
    c.num_ranks = each.at("num_ranks").get<int>();
    const auto experts = static_cast<std::int64_t>(c.loads.size());
    for (std::int64_t e = 0; e < experts; ++e) {
      int home = 0;
      while (experts * (home + 1) / c.num_ranks <= e) ++home;
      c.homes.push_back({home});
    }
    const auto thousandths = [](const Json& value) {
      return value.is_null() ? std::int64_t{0}
                             : static_cast<std::int64_t>(std::llround(value.get<double>() * 1000));
    };
    for (Kind kind : {Kind::least_loaded, Kind::level}) {
      const PlannerOptions options{kind, thousandths(each.at("alpha")),
                                   each.at("min_tokens").get<std::int64_t>(), thousandths(each.at("lambda"))};
      SCOPED_TRACE(each.at("name").get<std::string>());
      ASSERT_NO_FATAL_FAILURE(expect_same(with_random_sources(random, c), c, options, tally));
    }
  }
  EXPECT_GT(tally.spilled, 10);
}

}  // namespace
}  // namespace evenkeel::testing
