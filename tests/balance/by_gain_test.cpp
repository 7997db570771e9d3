// Deciding by gain returns the planner's plan if it saves more seconds than it costs, otherwise plain EP.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/error.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;

std::vector<std::int64_t> with_base(std::span<const std::int64_t> loads, std::span<const std::int64_t> base) {
  std::vector<std::int64_t> sums(loads.begin(), loads.end());
  for (std::size_t r = 0; r < base.size(); ++r) sums[r] += base[r];
  return sums;
}

// Seconds that `moved` saves over `home`, computed from the two plans alone.
double gain(const StepPlan& home, const StepPlan& moved, const SpillCosts& costs,
            std::span<const std::int64_t> base) {
  std::vector<int> sends(static_cast<std::size_t>(moved.num_ranks())), receives = sends;
  for (const Transfer& transfer : moved.transfers()) {
    ++sends[transfer.from.offset()];
    ++receives[transfer.to.offset()];
  }
  const std::int64_t saved = std::ranges::max(with_base(home.rank_loads(), base)) -
                             std::ranges::max(with_base(moved.rank_loads(), base));
  return costs.seconds_per_assignment * static_cast<double>(saved) - costs.seconds_per_step -
         costs.seconds_per_transfer * std::max(std::ranges::max(sends), std::ranges::max(receives));
}

TEST(ByGain, MovesExactlyWhereThatPays) {
  int moved_steps = 0, kept_steps = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 6) + 2;
    const Choices choices = random_choices(random, ranks);
    const LayerPlacement placement = LayerPlacement::contiguous(choices.num_experts, ranks);
    const Counts counts = choices.counts();
    std::vector<std::int64_t> base;
    if (seed % 3 == 0)
      for (int r = 0; r < ranks; ++r) base.push_back(static_cast<std::int64_t>(random() % 9));
    PlannerOptions options{seed % 2 == 0 ? Kind::level : Kind::least_loaded, 1000, 1, 0};
    StepPlan moved, home, decided;
    make_planner(options)->plan(counts, placement, moved, base);
    make_planner({Kind::ep})->plan(counts, placement, home, base);
    options.costs = SpillCosts{1.0, static_cast<double>(random() % 12), static_cast<double>(random() % 12)};
    make_planner(options)->plan(counts, placement, decided, base);
    const bool pays = moved.spilled() && gain(home, moved, *options.costs, base) > 0;
    const StepPlan& expected = pays ? moved : home;
    EXPECT_EQ(decided.spilled(), expected.spilled()) << seed;
    EXPECT_TRUE(std::ranges::equal(decided.rank_loads(), expected.rank_loads())) << seed;
    EXPECT_EQ(decided.transfers().size(), expected.transfers().size()) << seed;
    ++(pays ? moved_steps : kept_steps);
  }
  EXPECT_GT(moved_steps, 30);
  EXPECT_GT(kept_steps, 30);
}

TEST(ByGain, TurnsAtTheBreakEven) {
  // The ranks have 12 and 4 assignments. Balancing lowers the worst rank by 4, with one transfer.
  const Choices four{4, 1, {{0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}}};
  const LayerPlacement placement = LayerPlacement::contiguous(4, 2);
  for (const auto& [transfer, moves] :
       {std::pair{3.99, true}, std::pair{4.0, false}, std::pair{4.01, false}}) {
    PlannerOptions options{Kind::level, 1000, 1, 0};
    options.costs = SpillCosts{1.0, transfer, 0};
    StepPlan plan;
    make_planner(options)->plan(four.counts(), placement, plan);
    EXPECT_EQ(plan.spilled(), moves) << transfer;
  }
}

TEST(ByGain, RefusesCostsThatAreNoSeconds) {
  for (const double wrong :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    PlannerOptions options{Kind::level};
    options.costs = SpillCosts{0, wrong, 0};
    EXPECT_THROW(make_planner(options), InvalidArgument);
  }
}

}  // namespace
}  // namespace evenkeel::testing
