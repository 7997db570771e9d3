// The search of small instances where loads are so large that work in proportion to them would not end.
#include "evenkeel/balance/internal/small_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "evenkeel/balance/level.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

using internal::SmallSearch;
using ::testing::IsEmpty;

StepPlan plan_of(const Case& c, std::int64_t m, bool search_small) {
  PlannerOptions options{PlannerOptions::Kind::level, 1000, m, 0};
  options.search_small = search_small;
  StepPlan plan;
  Level(options).plan(c.counts(), c.placement(), plan, c.base_load);
  return plan;
}

std::int64_t worst_of(const Case& c, const StepPlan& plan) {
  std::int64_t worst = 0;
  for (std::size_t r = 0; r < plan.rank_loads().size(); ++r)
    worst = std::max(worst, plan.rank_loads()[r] + (c.base_load.empty() ? 0 : c.base_load[r]));
  return worst;
}

auto goodness(const Case& c, const StepPlan& plan) {
  return std::pair(worst_of(c, plan), std::ssize(plan.transfers()));
}

// Ranks that the search looks at for a plan better than the one without it.
std::int64_t visits_of(const Case& c, std::int64_t m) {
  StepPlan plan = plan_of(c, m, false);
  SmallSearch search;
  const auto [worst, transfers] = goodness(c, plan);
  search.improve(c.counts(), c.placement(), c.base_load, m, worst, {worst, transfers}, plan);
  return search.visits();
}

void expect_sound_and_no_worse(const Case& c, std::int64_t m) {
  const StepPlan with = plan_of(c, m, true);
  ASSERT_THAT(check_plan(c.counts(), c.placement(), with), IsEmpty());
  ASSERT_LE(goodness(c, with), goodness(c, plan_of(c, m, false)));
}

// In each of these, augmenting paths found depth first undo each other, min_segment assignments at a time.
struct Slow {
  Case c;
  std::int64_t min_segment;
};
const Slow kSlow[] = {
    {{{34999233791, 23326070296, 65165705518}, {{4, 7}, {2, 6}, {0, 3}}, 8, {}}, 64},
    {{{34999233791, 23326070296, 65165705518}, {{4, 7}, {2, 6}, {0, 3}}, 8, {}}, 8},
    {{{34999233791, 23326070296, 65165705518}, {{4, 7}, {2, 6}, {0, 3}}, 8, {}}, 1},
    {{{1635927, 188924071, 59122900, 207570300},
      {{4, 1}, {2, 1}, {1, 0}, {1}},
      7,
      {179, 95, 372, 265, 269, 80, 325}},
     64},
    {{{3799568501368567, 3777098567075237, 4585433955402779, 2354831847220172, 2416638454246178},
      {{0, 4}, {6, 5}, {0, 5}, {4, 5}, {4}},
      7,
      {466, 453, 163, 5, 343, 58, 434}},
     1},
};

TEST(SmallSearch, LooksAtFewRanksWherePathsFoundDepthFirstWouldUndoEachOther) {
  for (const Slow& slow : kSlow) {
    SCOPED_TRACE(testing::Message() << slow.c.text() << " m " << slow.min_segment);
    EXPECT_GT(visits_of(slow.c, slow.min_segment), 1000);
    EXPECT_LT(visits_of(slow.c, slow.min_segment), 200000);
    expect_sound_and_no_worse(slow.c, slow.min_segment);
  }
}

// Copies on few ranks, so that most work has to be led over several ranks.
Case adversarial_case(std::mt19937_64& random) {
  Case c;
  c.num_ranks = static_cast<int>(draw(random, 2, 9));
  const std::int64_t experts = draw(random, 1, std::min(8, SmallSearch::kMostPairs / (c.num_ranks - 1)));
  const std::int64_t largest = std::int64_t{1} << draw(random, 10, 50);
  const std::int64_t last_home = draw(random, 0, c.num_ranks - 1);
  for (std::int64_t e = 0; e < experts; ++e) {
    c.loads.push_back(draw(random, 0, largest));
    const auto first = static_cast<int>(draw(random, 0, last_home));
    const auto second = static_cast<int>(draw(random, 0, last_home));
    c.homes.push_back(first == second ? std::vector{first} : std::vector{first, second});
  }
  if (draw(random, 0, 1) == 0)
    for (int r = 0; r < c.num_ranks; ++r) c.base_load.push_back(draw(random, 0, 500));
  return c;
}

TEST(SmallSearch, EndsSoonWithASoundPlanHoweverLargeTheLoads) {
  std::mt19937_64 random(2);
  int searched = 0;
  for (int i = 0; i < 3000; ++i) {
    const Case c = adversarial_case(random);
    const std::int64_t m = i % 2 == 0 ? 1 : draw(random, 2, 64);
    SCOPED_TRACE(testing::Message() << "case " << i << " m " << m << " " << c.text());
    ASSERT_TRUE(SmallSearch::is_small(c.placement()));
    const std::int64_t visits = visits_of(c, m);
    ASSERT_LE(visits, SmallSearch::kMostVisits);
    expect_sound_and_no_worse(c, m);
    searched += visits > 0;
  }
  EXPECT_GT(searched, 1000);
}

}  // namespace
}  // namespace evenkeel
