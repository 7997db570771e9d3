// Level with few borrow slots per rank, compared with all possible plans and plain EP; the slot limit holds.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "evenkeel/balance/level.h"
#include "evenkeel/base/error.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"
#include "tests/balance/level_oracle.h"

namespace evenkeel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;

using Kind = PlannerOptions::Kind;

PlannerOptions options(std::int64_t m, std::int64_t slots) {
  return {.kind = Kind::level, .min_segment = m, .imbalance_threshold_thousandths = 0, .borrow_slots = slots};
}

StepPlan plan_of(const Case& c, const PlannerOptions& o) {
  StepPlan plan;
  make_planner(o)->plan(c.counts(), c.placement(), plan, c.base_load);
  return plan;
}

std::int64_t worst_of(const Case& c, const StepPlan& plan) {
  std::vector<std::int64_t> loads(plan.rank_loads().begin(), plan.rank_loads().end());
  for (std::size_t r = 0; r < c.base_load.size(); ++r) loads[r] += c.base_load[r];
  return std::ranges::max(loads);
}

std::vector<std::int64_t> borrowed(const StepPlan& plan) {
  std::vector<std::int64_t> experts(static_cast<std::size_t>(plan.num_ranks()));
  for (const Transfer& transfer : plan.transfers()) ++experts[transfer.to.offset()];
  return experts;
}

struct Tally {
  int plans = 0, best = 0, within_a_piece = 0;
};

Tally compare_with_every_plan(std::uint64_t seed, bool copies, std::int64_t slots) {
  std::mt19937_64 random(seed);
  Tally tally;
  for (int i = 0; i < 800; ++i) {
    const Case c = tiny_case(random, copies);
    for (const std::int64_t m : {1, 2, 3, 6}) {
      const BestPlan best = best_plan(c, m, slots);
      const StepPlan plan = plan_of(c, options(m, slots));
      const std::int64_t worst = worst_of(c, plan);
      const std::pair found(worst, std::ssize(plan.transfers()));
      EXPECT_THAT(check_plan(c.counts(), c.placement(), plan), IsEmpty()) << c.text();
      EXPECT_THAT(borrowed(plan), Each(Le(slots))) << c.text();
      tally.best += found <= std::pair(best.worst, std::ptrdiff_t{best.transfers});
      tally.within_a_piece += worst <= best.worst + m;
      ++tally.plans;
    }
  }
  return tally;
}

TEST(LevelSlots, HasTheBestPlanInNineteenOfTwentySmallInstancesAndIsWithinAPieceInTheOthers) {
  for (const bool copies : {false, true})
    for (const std::int64_t slots : {0, 1, 2}) {
      const Tally tally = compare_with_every_plan(copies ? 2 : 1, copies, slots);
      SCOPED_TRACE(testing::Message() << slots << " slots, copies " << copies);
      EXPECT_GE(tally.best * 100, tally.plans * 95);
      EXPECT_GE(tally.within_a_piece * 1000, tally.plans * 995);
    }
}

TEST(LevelSlots, IsNeverAbovePlainEpAndNeverBorrowsMore) {
  std::mt19937_64 random(3);
  int below = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case c = random_case(random, {.copies = i % 3 == 0, .base_load = true});
    const std::int64_t slots = draw(random, 0, 3), m = draw(random, 0, 2) * 20;
    SCOPED_TRACE(testing::Message() << "case " << i << " slots " << slots << " " << c.text());
    const StepPlan plan = plan_of(c, options(m, slots)), plain = plan_of(c, {.kind = Kind::ep});
    ASSERT_THAT(check_plan(c.counts(), c.placement(), plan), IsEmpty());
    ASSERT_THAT(borrowed(plan), Each(Le(slots)));
    ASSERT_LE(worst_of(c, plan), worst_of(c, plain));
    below += worst_of(c, plan) < worst_of(c, plain);
  }
  EXPECT_GT(below, 2500);
}

TEST(LevelSlots, AsManyAsExpertsAreNoLimit) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(random, {.copies = i % 3 == 0, .base_load = true});
    ASSERT_EQ(plan_of(c, options(1 + i % 9, std::ssize(c.loads))),
              plan_of(c, options(1 + i % 9, kUnlimitedSlots)))
        << c.text();
  }
}

TEST(LevelSlots, OneHotExpertNeedsOneSlotARank) {
  const std::int64_t all = std::int64_t{1} << 40;
  const Case c{{all, 0, 0, 0, 0}, {{0}, {0}, {1}, {2}, {3}}, 4, {}};
  EXPECT_THAT(plan_of(c, options(1024, 1)).rank_loads(), ElementsAre(all / 4, all / 4, all / 4, all / 4));
  EXPECT_FALSE(plan_of(c, options(1024, 0)).spilled());
}

TEST(LevelSlots, ALimitForLeastLoadedOrBelowZeroIsRefused) {
  EXPECT_THROW(make_planner({.kind = Kind::least_loaded, .borrow_slots = 3}), InvalidArgument);
  EXPECT_THROW(make_planner(options(1, -1)), InvalidArgument);
  EXPECT_NO_THROW(make_planner({.kind = Kind::ep, .borrow_slots = 0}));
}

}  // namespace
}  // namespace evenkeel
