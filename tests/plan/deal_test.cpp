// Every rank's deal equals the one found by listing all assignments and applying the rule.
#include "evenkeel/plan/deal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "evenkeel/balance/planner.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {
namespace {

void expect_deal(const Choices& choices, const StepPlan& plan, Deal& deal, const std::string& what) {
  const Counts counts = choices.counts();
  const auto to = destinations(choices, plan);
  const auto ranks = static_cast<std::size_t>(choices.num_ranks());
  for (std::size_t me = 0; me < ranks; ++me) {
    deal.make(counts, plan, RankId(me));
    std::vector<std::int64_t> sent(ranks), received(ranks);
    std::vector<ExpertId> here;
    std::vector<std::vector<std::int64_t>> arrivals;
    for (ExpertId expert : indices<ExpertId>(choices.num_experts)) {
      std::vector<int> expected, actual;
      std::vector<std::int64_t> from(ranks);
      for (std::size_t source = 0; source < ranks; ++source)
        for (std::size_t a = 0; a < to[source].size(); ++a) {
          if (choices.ids[source][a] != expert.value()) continue;
          if (source == me) expected.push_back(to[source][a]);
          if (to[source][a] == static_cast<int>(me)) ++from[source];
        }
      for (const Deal::Piece& piece : deal.pieces(expert))
        actual.insert(actual.end(), static_cast<std::size_t>(piece.count), piece.rank.value());
      ASSERT_EQ(actual, expected) << what << ", rank " << me << ", expert " << expert.value();
      for (int rank : expected) ++sent[static_cast<std::size_t>(rank)];
      for (std::size_t source = 0; source < ranks; ++source) received[source] += from[source];
      if (std::ranges::any_of(from, [](std::int64_t count) { return count > 0; })) {
        here.push_back(expert);
        arrivals.push_back(from);
      }
    }
    ASSERT_TRUE(std::ranges::equal(deal.experts_here(), here)) << what;
    for (std::size_t i = 0; i < here.size(); ++i)
      ASSERT_TRUE(std::ranges::equal(deal.arrivals(i), arrivals[i])) << what;
    ASSERT_TRUE(std::ranges::equal(deal.sent(), sent)) << what;
    ASSERT_TRUE(std::ranges::equal(deal.received(), received)) << what;
  }
}

TEST(Deal, FollowsItsRuleForThePlansOfEveryPlanner) {
  Deal deal;
  StepPlan plan;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 9) + 1;
    const Choices choices = random_choices(random, ranks);
    const LayerPlacement placement = random_placement(random, choices.num_experts, ranks, seed % 2 == 0);
    for (auto kind :
         {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded, PlannerOptions::Kind::level}) {
      make_planner({kind, 1000, static_cast<std::int64_t>(random() % 8), 0})
          ->plan(choices.counts(), placement, plan);
      expect_deal(choices, plan, deal, "seed " + std::to_string(seed));
    }
  }
}

TEST(Deal, FollowsItsRuleForAnyPlanEvenWithSeveralSegmentsOfOneRank) {
  Deal deal;
  StepPlan plan;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 6) + 1;
    const Choices choices = random_choices(random, ranks);
    fill_random_plan(random, choices.counts(), random_placement(random, choices.num_experts, ranks, true),
                     plan);
    expect_deal(choices, plan, deal, "seed " + std::to_string(seed));
  }
}

TEST(Deal, KeepsEveryTokenAtHomeThatTheQuotasAllow) {
  const Choices choices{1, 1, {{0, 0, 0}, {0, 0}, {0, 0, 0, 0, 0}}};
  StepPlan plan;
  const LayerPlacement placement = LayerPlacement::contiguous(1, 3);
  plan.begin(placement);
  plan.begin_expert(ExpertId(0));
  plan.give(RankId(2), 4);
  plan.give(RankId(0), 2);
  plan.give(RankId(1), 4);
  const std::vector<std::vector<int>> expected = {{0, 0, 1}, {1, 1}, {2, 2, 2, 2, 1}};
  EXPECT_EQ(destinations(choices, plan), expected);
  Deal deal;
  expect_deal(choices, plan, deal, "by hand");
}

}  // namespace
}  // namespace evenkeel::testing
