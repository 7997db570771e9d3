// Level compared with all possible plans (small instances) and with least-loaded (any size), and tests of its
// stated laws.
#include "evenkeel/balance/level.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"
#include "tests/balance/level_oracle.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

__extension__ using Wide = __int128;  // products of two loads

PlannerOptions options(std::int64_t m, std::int64_t lambda = 0) {
  return {PlannerOptions::Kind::level, 1000, m, lambda};
}

StepPlan plan_of(const Case& c, const PlannerOptions& o) {
  StepPlan plan;
  Level(o).plan(c.counts(), c.placement(), plan, c.base_load);
  return plan;
}

std::int64_t worst_of(const Case& c, const StepPlan& plan) {
  std::int64_t worst = 0;
  for (std::size_t r = 0; r < plan.rank_loads().size(); ++r)
    worst = std::max(worst, plan.rank_loads()[r] + (c.base_load.empty() ? 0 : c.base_load[r]));
  return worst;
}

std::int64_t transfers_of(const StepPlan& plan) {
  return static_cast<std::int64_t>(plan.transfers().size());
}

// At least 95.5 % of the plans have the lowest worst load and the fewest transfers; the others' worst load is
// above the lowest by less than one piece.
void compare_with_every_plan(std::uint64_t seed, bool copies, int cases) {
  std::mt19937_64 random(seed);
  int best_plans = 0, plans = 0;
  for (int i = 0; i < cases; ++i) {
    const Case c = tiny_case(random, copies);
    for (std::int64_t m : {1, 2, 3, 6}) {
      const BestPlan best = best_plan(c, m);
      const StepPlan plan = plan_of(c, options(m));
      SCOPED_TRACE(testing::Message() << "seed " << seed << " case " << i << " m " << m << " " << c.text());
      ASSERT_THAT(check_plan(c.counts(), c.placement(), plan), IsEmpty());
      ASSERT_LE(worst_of(c, plan), best.worst + m - 1);
      const bool is_best =
          std::pair(worst_of(c, plan), transfers_of(plan)) <= std::pair(best.worst, best.transfers);
      best_plans += is_best;
      ++plans;
    }
  }
  EXPECT_GE(best_plans * 1000, plans * 955);
}

TEST(Level, HasTheBestPlanOfAllInMostSmallInstancesAndElseOneWithinAPiece) {
  compare_with_every_plan(1, false, 4000);
}

TEST(Level, HasTheBestPlanOfAllInMostSmallInstancesWithCopies) {
  compare_with_every_plan(2, true, 1500);
}

// Whether pieces on ranks without a copy have the least size. Two segments of one expert on one rank count as
// one piece.
bool pieces_are_large(const Case& c, const StepPlan& plan, std::int64_t m) {
  for (const Transfer& t : plan.transfers()) {
    std::int64_t piece = 0;
    for (const Segment& s : plan.segments(t.expert)) piece += s.rank == t.to ? s.size() : 0;
    if (piece < std::min(m, c.loads[t.expert.offset()])) return false;
  }
  return true;
}

TEST(Level, IsNeverAboveLeastLoadedAndHasSmallPiecesOnlyWhereThatIsLower) {
  std::mt19937_64 random(3);
  int lower = 0, small_pieces = 0;
  const std::int64_t segments[] = {0, 1, 3, 64, 1024, std::int64_t{1} << 40};
  for (int i = 0; i < 6000; ++i) {
    const Case c = random_case(random, {.copies = i % 3 == 0, .base_load = true});
    const std::int64_t m = segments[draw(random, 0, 5)];
    SCOPED_TRACE(testing::Message() << "case " << i << " m " << m << " " << c.text());
    const StepPlan level = plan_of(c, options(m));
    StepPlan least_loaded;
    LeastLoaded({PlannerOptions::Kind::least_loaded, 1000, m, 0})
        .plan(c.counts(), c.placement(), least_loaded, c.base_load);
    ASSERT_THAT(check_plan(c.counts(), c.placement(), level), IsEmpty());
    ASSERT_LE(worst_of(c, level), worst_of(c, least_loaded));
    lower += worst_of(c, level) < worst_of(c, least_loaded);
    if (pieces_are_large(c, level, m)) continue;
    ++small_pieces;
    ASSERT_EQ(worst_of(c, level), worst_of(c, least_loaded));
  }
  EXPECT_GT(lower, 500);
  EXPECT_LT(small_pieces, 1200);
}

TEST(Level, IsNeverAboveLeastLoadedWithOneThresholdForBothUnlessTheRanksAreBelowIt) {
  std::mt19937_64 random(33);
  int above = 0, below = 0;
  for (int i = 0; i < 4000; ++i) {
    const Case c = random_case(random, {.copies = i % 3 == 0, .base_load = i % 2 == 0});
    const std::int64_t m = draw(random, 0, 8), threshold = draw(random, 1000, 2000);
    SCOPED_TRACE(testing::Message() << "case " << i << " threshold " << threshold << " " << c.text());
    const PlannerOptions both = options(m, threshold);
    StepPlan least_loaded;
    LeastLoaded(both).plan(c.counts(), c.placement(), least_loaded, c.base_load);
    const StepPlan level = plan_of(c, both);
    const std::int64_t worst = worst_of(c, level), theirs = worst_of(c, least_loaded);
    below += worst < theirs;
    if (worst <= theirs) continue;
    ++above;
    ASSERT_THAT(level.transfers(), IsEmpty());
    const std::int64_t work = std::accumulate(c.base_load.begin(), c.base_load.end(), c.counts().total());
    ASSERT_TRUE(Wide{worst} * c.num_ranks * 1000 < Wide{threshold} * work);
  }
  EXPECT_GT(above, 50);
  EXPECT_GT(below, 50);
}

TEST(Level, ReachesTheMeanRoundedUpOrTheLargestBaseLoadWhenEveryPieceMayMove) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 4000; ++i) {
    const Case c =
        random_case(random, {.max_ranks = 20, .max_experts = 60, .copies = i % 3 == 0, .base_load = true});
    std::int64_t total = 0, base = 0;
    for (std::int64_t load : c.loads) total += load;
    for (std::int64_t load : c.base_load) total += load, base = std::max(base, load);
    const std::int64_t mean = total / c.num_ranks + (total % c.num_ranks != 0);
    ASSERT_EQ(worst_of(c, plan_of(c, options(1))), std::max(mean, base)) << "case " << i << " " << c.text();
  }
}

TEST(Level, TakesThePlainPathExactlyBelowTheThresholdOfTheRanksLoads) {
  const Case c{{100, 30, 0, 70},
               {{0}, {0}, {1}, {1}},
               2,
               {}};  // rank loads 130 and 70; the largest expert has twice the mean expert load
  EXPECT_FALSE(plan_of(c, options(1, 1301)).spilled());
  EXPECT_TRUE(plan_of(c, options(1, 1300)).spilled());
  const Case with_base{{100, 30, 0, 70}, {{0}, {0}, {1}, {1}}, 2, {0, 60}};
  EXPECT_FALSE(plan_of(with_base, options(1, 1001)).spilled());
}

TEST(Level, KeepsABalancedStepAtHomeEvenIfItAlwaysPlans) {
  const Case c{{40, 60, 100, 0, 1, 99}, {{0}, {0}, {1}, {1}, {2}, {2}}, 3, {}};
  EXPECT_FALSE(plan_of(c, options(1)).spilled());
}

TEST(Level, PaysTwoDebtsThatMatchWithOneTransferEach) {
  const Case c{{150, 130, 50, 70}, {{0}, {1}, {2}, {3}}, 4, {}};
  const StepPlan plan = plan_of(c, options(1));
  EXPECT_THAT(plan.rank_loads(), ElementsAre(100, 100, 100, 100));
  EXPECT_EQ(transfers_of(plan), 2);
}

TEST(Level, TakesLoadsUpToTheLargestInteger) {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  const Case c{{largest, 0, 0, 0, 0, 0, 0, 0, 0}, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}, 9, {}};
  const StepPlan plan = plan_of(c, options(1024));
  EXPECT_EQ(worst_of(c, plan), largest / 9 + (largest % 9 != 0));
  EXPECT_EQ(transfers_of(plan), 8);
  EXPECT_FALSE(plan_of(c, options(1024, largest)).spilled());
}

// Assignments computed on their token's rank: each rank fills its segments with its own tokens first.
std::int64_t rows_kept(const Counts& counts, const StepPlan& plan) {
  std::int64_t kept = 0;
  for (ExpertId e : indices<ExpertId>(plan.num_experts()))
    for (RankId r : indices<RankId>(plan.num_ranks())) {
      std::int64_t quota = 0;
      for (const Segment& s : plan.segments(e)) quota += s.rank == r ? s.size() : 0;
      kept += std::min(quota, counts.at(r, e));
    }
  return kept;
}

TEST(Level, KeepsMoreRowsOnTheirRankWhenItKnowsTheSourcesAtTheSameLoadsAndTransfers) {
  std::mt19937_64 random(5);
  int better = 0;
  for (int i = 0; i < 3000; ++i) {
    Case c = random_case(random, {.max_ranks = 8, .max_experts = 40});
    c.base_load.clear();
    const Counts counts = with_random_sources(random, c);
    StepPlan with, without;
    Level(options(2)).plan(counts, c.placement(), with);
    Level(options(2)).plan(c.counts(), c.placement(), without);
    ASSERT_THAT(check_plan(counts, c.placement(), with), IsEmpty()) << c.text();
    ASSERT_EQ(worst_of(c, with), worst_of(c, without)) << c.text();
    ASSERT_EQ(transfers_of(with), transfers_of(without)) << c.text();
    ASSERT_GE(rows_kept(counts, with), rows_kept(counts, without)) << c.text();
    better += rows_kept(counts, with) > rows_kept(counts, without);
  }
  EXPECT_GT(better, 1000);
}

TEST(Level, MakesTheSamePlanWhateverItPlannedBefore) {
  std::mt19937_64 random(6);
  Level used(options(3));
  StepPlan used_plan;
  for (int i = 0; i < 500; ++i) {
    const Case c = random_case(random, {.copies = i % 2 == 0, .base_load = true});
    used.plan(c.counts(), c.placement(), used_plan, c.base_load);
    ASSERT_EQ(used_plan, plan_of(c, options(3))) << c.text();
  }
}

}  // namespace
}  // namespace evenkeel
