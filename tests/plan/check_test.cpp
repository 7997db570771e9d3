// The checker reports every kind of broken plan by name, and accepts a sound plan.
#include "evenkeel/plan/check.h"

#include <gmock/gmock.h>

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const LayerPlacement kPlacement({{0}, {0, 1}, {2}, {2}}, 3);

Counts counts() {
  const std::int64_t loads[] = {10, 7, 0, 5};
  return Counts::of_loads(loads, 3);
}

// A plan in which expert 0 spills 4 to rank 1 and 1 to rank 2, and expert 1 is split over its copies.
PlanRecord sound() {
  StepPlan plan;
  plan.begin(kPlacement);
  plan.begin_expert(ExpertId(0));
  plan.give(RankId(0), 5);
  plan.give(RankId(1), 4);
  plan.give(RankId(2), 1);
  plan.begin_expert(ExpertId(1));
  plan.give(RankId(0), 4);
  plan.give(RankId(1), 3);
  plan.begin_expert(ExpertId(3));
  plan.give(RankId(2), 5);
  return plan;
}

std::vector<std::string> check(const PlanRecord& plan) {
  return check_plan(counts(), kPlacement, plan);
}

TEST(CheckPlan, FindsNothingWrongWithASoundPlan) {
  EXPECT_THAT(check(sound()), IsEmpty());
}

TEST(CheckPlan, AllowsTwoSegmentsOfAnExpertOnOneRankWithOneTransfer) {
  PlanRecord plan = sound();
  plan.segments[0] = {{RankId(0), 0, 5}, {RankId(1), 5, 6}, {RankId(2), 6, 7}, {RankId(1), 7, 10}};
  EXPECT_THAT(check(plan), IsEmpty());
}

TEST(CheckPlan, FindsAssignmentsInNoSegment) {
  PlanRecord plan = sound();
  plan.segments[3] = {{RankId(2), 0, 4}};
  plan.rank_loads[2] = 5;
  EXPECT_THAT(check(plan), ElementsAre("expert 3: segments cover 4 of 5 assignments"));
}

TEST(CheckPlan, FindsAnExpertWithoutSegments) {
  PlanRecord plan = sound();
  plan.segments[3].clear();
  plan.rank_loads[2] = 1;
  EXPECT_THAT(check(plan), ElementsAre("expert 3: segments cover 0 of 5 assignments"));
}

TEST(CheckPlan, FindsMoreAssignmentsThanTheExpertHas) {
  PlanRecord plan = sound();
  plan.segments[2] = {{RankId(2), 0, 3}};
  plan.rank_loads[2] = 9;
  EXPECT_THAT(check(plan), ElementsAre("expert 2: segments cover 3 of 0 assignments"));
}

TEST(CheckPlan, FindsAnAssignmentInTwoSegments) {
  PlanRecord plan = sound();
  plan.segments[1] = {{RankId(0), 0, 4}, {RankId(1), 3, 7}};
  plan.rank_loads[1] = 8;
  EXPECT_THAT(check(plan), ElementsAre("expert 1: segment begins at 3, the one before ends at 4"));
}

TEST(CheckPlan, FindsAGapBetweenSegments) {
  PlanRecord plan = sound();
  plan.segments[1] = {{RankId(0), 0, 4}, {RankId(1), 5, 7}};
  plan.rank_loads[1] = 6;
  EXPECT_THAT(check(plan), ElementsAre("expert 1: segment begins at 5, the one before ends at 4"));
}

TEST(CheckPlan, FindsAnEmptySegment) {
  PlanRecord plan = sound();
  plan.segments[3] = {{RankId(2), 0, 5}, {RankId(2), 5, 5}};
  EXPECT_THAT(check(plan), ElementsAre("expert 3: segment [5, 5) is empty"));
}

TEST(CheckPlan, FindsARankThatDoesNotExist) {
  PlanRecord plan = sound();
  plan.segments[3] = {{RankId(3), 0, 5}};
  plan.rank_loads[2] = 1;
  EXPECT_THAT(check(plan), ElementsAre("expert 3: segment on rank 3, which is outside 0..2"));
}

TEST(CheckPlan, FindsAWrongRankLoad) {
  PlanRecord plan = sound();
  plan.rank_loads[1] = 8;
  EXPECT_THAT(check(plan), ElementsAre("rank 1: the plan gives it load 8, but its segments add up to 7"));
}

TEST(CheckPlan, FindsAMissingTransfer) {
  PlanRecord plan = sound();
  plan.transfers.pop_back();
  EXPECT_THAT(check(plan), ElementsAre("expert 0: rank 2 computes it, has no copy and gets no transfer"));
}

TEST(CheckPlan, FindsATransferListedTwice) {
  PlanRecord plan = sound();
  plan.transfers.push_back(plan.transfers.back());
  EXPECT_THAT(check(plan), ElementsAre("transfer of expert 0 from 0 to 2: listed more than once",
                                       "transfer of expert 0 from 0 to 2: listed more than once"));
}

TEST(CheckPlan, FindsATransferNobodyNeeds) {
  PlanRecord plan = sound();
  plan.transfers.push_back({ExpertId(3), RankId(2), RankId(0)});
  EXPECT_THAT(check(plan), ElementsAre("transfer of expert 3 from 2 to 0: the receiver computes none of it"));
}

TEST(CheckPlan, FindsATransferToACopy) {
  PlanRecord plan = sound();
  plan.transfers.push_back({ExpertId(1), RankId(0), RankId(1)});
  EXPECT_THAT(check(plan), ElementsAre("transfer of expert 1 from 0 to 1: the receiver has a copy"));
}

TEST(CheckPlan, FindsATransferNotFromTheOwner) {
  PlanRecord plan = sound();
  plan.transfers[0].from = RankId(2);
  EXPECT_THAT(check(plan), ElementsAre("transfer of expert 0 from 2 to 1: the owner is rank 0"));
}

TEST(CheckPlan, FindsATransferOfAnUnknownExpertOrToAnUnknownRank) {
  PlanRecord plan = sound();
  plan.transfers.push_back({ExpertId(4), RankId(2), RankId(0)});
  plan.transfers.push_back({ExpertId(3), RankId(2), RankId(-1)});
  EXPECT_THAT(check(plan), ElementsAre("transfer of expert 4 from 2 to 0: no such expert",
                                       "transfer of expert 3 from 2 to -1: no such rank"));
}

TEST(CheckPlan, FindsAPlanOfAnotherShape) {
  PlanRecord plan = sound();
  plan.segments.pop_back();
  EXPECT_THAT(check(plan), ElementsAre("the plan has 3 experts and 3 ranks, the placement has 4 and 3"));
}

TEST(CheckPlan, FindsCountsOfAnotherShape) {
  const std::int64_t loads[] = {10, 7, 0};
  EXPECT_THAT(check_plan(Counts::of_loads(loads, 2), kPlacement, sound()),
              ElementsAre("counts have 3 experts and 2 ranks, the placement has 4 and 3"));
}

}  // namespace
}  // namespace evenkeel
