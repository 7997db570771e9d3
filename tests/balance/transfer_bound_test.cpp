// The lower bound on transfers, compared with all possible plans.
#include "evenkeel/balance/transfer_bound.h"

#include <gmock/gmock.h>

#include "evenkeel/balance/level.h"
#include "tests/balance/cases.h"
#include "tests/balance/level_oracle.h"

namespace evenkeel {
namespace {

void compare_with_every_plan(std::uint64_t seed, bool copies, int cases, double tight_share) {
  std::mt19937_64 random(seed);
  int tight = 0;
  for (int i = 0; i < cases; ++i) {
    const Case c = tiny_case(random, copies);
    const std::int64_t worst = best_plan(c, 1).worst + draw(random, 0, 3);
    const std::int64_t fewest = fewest_transfers(c, 1, worst);
    const std::int64_t bound = transfer_lower_bound(c.counts(), c.placement(), worst, c.base_load);
    ASSERT_LE(bound, fewest) << "seed " << seed << " case " << i << " worst " << worst << " " << c.text();
    tight += bound == fewest;
  }
  EXPECT_GE(tight, tight_share * cases);
}

TEST(TransferBound, IsNeverAboveTheFewestTransfersOfAnyPlanAndAlmostAlwaysThat) {
  compare_with_every_plan(1, false, 4000, 0.99);
}

TEST(TransferBound, IsNeverAboveTheFewestTransfersWithCopies) {
  compare_with_every_plan(2, true, 2000, 0.85);
}

TEST(TransferBound, CountsTwoTransfersForARankThatOneExpertCannotFill) {
  std::vector<std::int64_t> loads(32, 1000);  // 16 on rank 0, 16 on rank 1, none on ranks 2 and 3
  std::vector<std::vector<int>> homes;
  for (int e = 0; e < 32; ++e) homes.push_back({e / 16});
  EXPECT_EQ(transfer_lower_bound(Counts::of_loads(loads, 4), LayerPlacement(homes, 4), 8000), 16);
}

TEST(TransferBound, HoldsForManyRanksWhereItDoesNotTryAllSubsets) {
  std::mt19937_64 random(3);
  int close = 0;
  for (int i = 0; i < 500; ++i) {
    Case c = random_case(random, {.max_ranks = 64, .max_experts = 200});
    c.base_load.clear();
    StepPlan plan;
    Level({PlannerOptions::Kind::level, 1000, 1, 0}).plan(c.counts(), c.placement(), plan);
    const std::int64_t worst = *std::ranges::max_element(plan.rank_loads());
    const std::int64_t bound = transfer_lower_bound(c.counts(), c.placement(), worst);
    const auto transfers = static_cast<std::int64_t>(plan.transfers().size());
    ASSERT_LE(bound, transfers) << c.text();
    close += 2 * bound >= transfers;
  }
  EXPECT_GT(close, 450);
}

TEST(TransferBound, IsZeroWhereNothingHasToMove) {
  const std::int64_t loads[] = {5, 5};
  EXPECT_EQ(transfer_lower_bound(Counts::of_loads(loads, 2), LayerPlacement::contiguous(2, 2), 5), 0);
}

}  // namespace
}  // namespace evenkeel
