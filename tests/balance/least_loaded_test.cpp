// Least-loaded compared with the paper's literal algorithm on random and adversarial loads, and tests of its
// stated laws.
#include "evenkeel/balance/least_loaded.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"
#include "tests/balance/least_loaded_oracle.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlannerOptions options(std::int64_t alpha, std::int64_t m, std::int64_t lambda) {
  return {PlannerOptions::Kind::least_loaded, alpha, m, lambda};
}

PlannerOptions random_options(std::mt19937_64& random) {
  const std::int64_t alphas[] = {1000, 1100, 1250, 1333, 2000};
  const std::int64_t segments[] = {0, 1, 3, 64, 1024, std::int64_t{1} << 40};
  const std::int64_t lambdas[] = {0, 0, 1000, 1300, 4000};
  return options(alphas[draw(random, 0, 4)], segments[draw(random, 0, 5)], lambdas[draw(random, 0, 4)]);
}

void expect_equal(const StepPlan& plan, const OraclePlan& oracle) {
  for (ExpertId e : indices<ExpertId>(plan.num_experts())) {
    std::vector<OracleSegment> segments;
    for (const Segment& s : plan.segments(e)) segments.push_back({s.rank.value(), s.begin, s.end});
    ASSERT_EQ(segments, oracle.segments[e.offset()]) << "expert " << e.value();
  }
  std::vector<std::vector<int>> transfers;
  for (const Transfer& t : plan.transfers()) transfers.push_back({t.expert.value(), t.to.value()});
  ASSERT_EQ(transfers, oracle.transfers);
}

void compare_with_oracle(std::uint64_t seed, const CaseLimits& limits, int cases) {
  std::mt19937_64 random(seed);
  int spilled = 0;
  for (int i = 0; i < cases; ++i) {
    const Case c = random_case(random, limits);
    const PlannerOptions o = random_options(random);
    StepPlan plan;
    LeastLoaded(o).plan(c.counts(), c.placement(), plan, c.base_load);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " case " << i << " alpha "
                                    << o.capacity_factor_thousandths << " m " << o.min_segment << " lambda "
                                    << o.imbalance_threshold_thousandths << " " << c.text());
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(plan, least_loaded_oracle(c, o.capacity_factor_thousandths, o.min_segment,
                                               o.imbalance_threshold_thousandths)));
    ASSERT_THAT(check_plan(c.counts(), c.placement(), plan), IsEmpty());
    spilled += plan.spilled();
  }
  EXPECT_GT(spilled, cases / 4) << "too few cases spill to prove anything";
}

TEST(LeastLoaded, EqualsALiteralReadingOfThePaper) {
  compare_with_oracle(1, {}, 6000);
}

TEST(LeastLoaded, EqualsALiteralReadingOfThePaperWithManyExpertsAndRanks) {
  compare_with_oracle(2, {.max_ranks = 40, .max_experts = 300}, 300);
  compare_with_oracle(5, {.max_ranks = 700, .max_experts = 900}, 40);
}

TEST(LeastLoaded, CountsBaseLoadAsGivenAndInTheCapacity) {
  compare_with_oracle(3, {.base_load = true}, 4000);
}

TEST(LeastLoaded, TreatsACopyAsAnExpertOfItsShare) {
  compare_with_oracle(4, {.copies = true, .base_load = true}, 4000);
}

StepPlan plan_of(const std::vector<std::int64_t>& loads, int ranks, const PlannerOptions& o) {
  StepPlan plan;
  LeastLoaded(o).plan(Counts::of_loads(loads, ranks),
                      LayerPlacement::contiguous(static_cast<int>(loads.size()), ranks), plan);
  return plan;
}

TEST(LeastLoaded, KeepsFewerAssignmentsThanRanksAtHome) {
  EXPECT_FALSE(plan_of({3, 0, 0, 0}, 4, options(1000, 0, 0)).spilled());
  EXPECT_TRUE(plan_of({4, 0, 0, 0}, 4, options(1000, 0, 0)).spilled());
}

TEST(LeastLoaded, KeepsEverythingAtHomeOnOneRank) {
  EXPECT_THAT(plan_of({100, 1}, 1, options(1000, 0, 0)).rank_loads(), ElementsAre(101));
}

TEST(LeastLoaded, PlansExactlyFromTheThresholdOn) {
  // largest / mean = 130 / 100
  EXPECT_TRUE(plan_of({130, 70}, 2, options(1000, 0, 1300)).spilled());
  EXPECT_FALSE(plan_of({130, 70}, 2, options(1000, 0, 1301)).spilled());
}

TEST(LeastLoaded, TakesLoadsUpToTheLargestInteger) {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(plan_of({largest, 0, 0, 0}, 4, options(1000, 1, 4000)).rank_loads(),
              ElementsAre(largest / 4, largest / 4 + 3, largest / 4, largest / 4));
  EXPECT_FALSE(plan_of({largest, 0, 0, 0}, 4, options(largest, 1, 0)).spilled());
}

TEST(LeastLoaded, RefusesArgumentsThatDoNotAgree) {
  const auto message = [](const Counts& counts, const LayerPlacement& placement,
                          std::vector<std::int64_t> base) -> std::string {
    StepPlan plan;
    try {
      LeastLoaded(PlannerOptions{}).plan(counts, placement, plan, base);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  const LayerPlacement placement = LayerPlacement::contiguous(4, 2);
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  const Counts full = Counts::of_loads(std::vector<std::int64_t>{largest, 0, 0, 0}, 2);
  EXPECT_THAT(message(Counts(2, 3), placement, {}), HasSubstr("3 experts"));
  EXPECT_THAT(message(Counts(3, 4), placement, {}), HasSubstr("3 ranks"));
  EXPECT_THAT(message(Counts(2, 4), placement, {1}), HasSubstr("base_load"));
  EXPECT_THAT(message(Counts(2, 4), placement, {1, -1}), HasSubstr("-1 on rank 1"));
  EXPECT_THAT(message(full, placement, {1, 0}), HasSubstr("above 2^63-1"));
}

TEST(MakePlanner, NamesThePlannerAndRefusesOptionsOutOfRange) {
  using Kind = PlannerOptions::Kind;
  EXPECT_EQ(make_planner({.kind = Kind::ep})->name(), "ep");
  EXPECT_EQ(make_planner({.kind = Kind::least_loaded})->name(), "least-loaded");
  EXPECT_EQ(make_planner({.kind = Kind::level})->name(), "level");
  EXPECT_THROW(make_planner({.capacity_factor_thousandths = 999}), InvalidArgument);
  EXPECT_THROW(make_planner({.min_segment = -1}), InvalidArgument);
  EXPECT_THROW(make_planner({.imbalance_threshold_thousandths = -1}), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
