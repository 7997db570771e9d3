// Plain expert parallelism: no weights are transferred, and copies share their expert's load evenly.
#include "evenkeel/balance/ep.h"

#include <gmock/gmock.h>

#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Ep, KeepsEveryExpertOnItsHomes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(random, {.copies = true, .base_load = true});
    StepPlan plan;
    Ep().plan(c.counts(), c.placement(), plan, c.base_load);
    ASSERT_THAT(check_plan(c.counts(), c.placement(), plan), IsEmpty()) << c.text();
    ASSERT_FALSE(plan.spilled()) << c.text();
  }
}

TEST(Ep, DealsAnExpertEvenlyOverItsCopiesTheFirstTakingTheRemainder) {
  const std::int64_t loads[] = {8, 2};
  StepPlan plan;
  Ep().plan(Counts::of_loads(loads, 4), LayerPlacement({{3, 0, 2}, {0, 1, 2}}, 4), plan);
  EXPECT_THAT(plan.segments(ExpertId(0)),
              ElementsAre(Segment{RankId(3), 0, 3}, Segment{RankId(0), 3, 6}, Segment{RankId(2), 6, 8}));
  EXPECT_THAT(plan.segments(ExpertId(1)), ElementsAre(Segment{RankId(0), 0, 1}, Segment{RankId(1), 1, 2}));
}

}  // namespace
}  // namespace evenkeel
