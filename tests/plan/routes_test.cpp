// A router refuses choices that differ from the counts. The tests of exchange/ check how it numbers valid
// ones.
#include "evenkeel/plan/routes.h"

#include <gtest/gtest.h>

#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel::testing {
namespace {

TEST(Router, RefusesChoicesThatWereNotCounted) {
  Counts counts(1, 2);
  counts.rows()[0] = 2;
  counts.rows()[1] = 1;
  counts.sum_loads();
  const LayerPlacement placement = LayerPlacement::contiguous(2, 1);
  StepPlan plan;
  plan.begin(placement);
  for (const int expert : {0, 1}) {
    plan.begin_expert(ExpertId(expert));
    plan.give(RankId(0), counts.load(ExpertId(expert)));
  }
  Deal deal;
  deal.make(counts, plan, RankId(0));
  std::vector<std::int32_t> assignments(3), tokens(3), message(1), results(3), row_of(3);
  const auto send = [&](const std::vector<std::int32_t>& choices) {
    Router().send(choices, 1, deal, RankId(0),
                  {.assignments = assignments,
                   .tokens = tokens,
                   .messages = message,
                   .own_message = {},
                   .result_of = results},
                  row_of);
  };
  for (const auto& other : {std::vector{0, 0, 0}, {0, 0}, {0, 0, 2}, {0, 0, -2}})
    EXPECT_THROW(send(other), InvalidArgument);
  send({0, 1, 0});
  EXPECT_EQ(assignments, (std::vector{0, 2, 1}));
}

}  // namespace
}  // namespace evenkeel::testing
