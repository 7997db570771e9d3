// Level on the loads it is meant for: LLEP's twelve concentrated scenarios, and loads of a real trace.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/transfer_bound.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

using ::testing::IsEmpty;

constexpr int kRanks = 8;

struct Outcome {
  std::int64_t worst = 0;
  std::int64_t transfers = 0;
};

Outcome outcome(PlannerOptions::Kind kind, const Counts& counts, const LayerPlacement& placement) {
  StepPlan plan;
  make_planner({.kind = kind, .min_segment = 64, .imbalance_threshold_thousandths = 0})
      ->plan(counts, placement, plan);
  EXPECT_THAT(check_plan(counts, placement, plan), IsEmpty());
  return {*std::ranges::max_element(plan.rank_loads()), static_cast<std::int64_t>(plan.transfers().size())};
}

struct Scenario {
  Counts counts;
  std::string name;
};

std::vector<Scenario> scenarios(std::int64_t assignments, bool spread, int seeds) {
  std::vector<Scenario> all;
  for (double share : {0.30, 0.50, 0.80, 0.95})
    for (int hot : {1, 4, 16})
      for (int seed = 1; seed <= seeds; ++seed) {
        std::mt19937_64 random(static_cast<std::uint64_t>(seed));
        all.push_back({Counts::of_loads(concentrated(random, 128, assignments, share, hot, spread), kRanks),
                       fmt::format("{} into {}{} seed {}", share, hot, spread ? " spread" : "", seed)});
      }
  return all;
}

const LayerPlacement& homes() {
  static const LayerPlacement placement = LayerPlacement::contiguous(128, kRanks);
  return placement;
}

class LevelScenarios : public testing::TestWithParam<bool> {};

TEST_P(LevelScenarios, AreLevelWithinOnePercentWithOneTransferMoreThanRanksOrTheBoundWhereThatIsLarger) {
  for (const auto& [counts, name] : scenarios(262144, GetParam(), 20)) {
    const Outcome level = outcome(PlannerOptions::Kind::level, counts, homes());
    EXPECT_LE(level.worst * kRanks * 100, counts.total() * 101) << name;
    const std::int64_t bound = transfer_lower_bound(counts, homes(), level.worst);
    EXPECT_LE(level.transfers, std::max<std::int64_t>(kRanks + 1, bound)) << name;
  }
}

// Total transfers of level, of least-loaded, and of the lower bound at level's worst rank load.
struct Transfers {
  std::int64_t level = 0, least_loaded = 0, bound = 0;
};

Transfers sum_transfers(const std::vector<Scenario>& all) {
  Transfers sum;
  for (const auto& [counts, name] : all) {
    const Outcome level = outcome(PlannerOptions::Kind::level, counts, homes());
    const Outcome least_loaded = outcome(PlannerOptions::Kind::least_loaded, counts, homes());
    EXPECT_LE(level.worst, least_loaded.worst) << name;
    sum.level += level.transfers;
    sum.least_loaded += least_loaded.transfers;
    sum.bound += transfer_lower_bound(counts, homes(), level.worst);
  }
  return sum;
}

TEST_P(LevelScenarios, TakeHalfOfLeastLoadedsTransfersWhereTheTotalIsNoMultipleOfTheRanks) {
  const Transfers sum = sum_transfers(scenarios(262141, GetParam(), 5));
  EXPECT_LE(2 * sum.level, sum.least_loaded);
}

TEST_P(LevelScenarios, TakeThreePercentMoreThanTheBoundAtMostWhereTheTotalIsAMultipleOfTheRanks) {
  const Transfers sum = sum_transfers(scenarios(262144, GetParam(), 10));
  EXPECT_LT(sum.level, sum.least_loaded);
  EXPECT_LE(sum.level * 100, sum.bound * 103);
}

TEST(LevelOnRealLoads, MeetsTheMeanWithOneTransferMoreThanRanksOrTheBoundWhereThatIsLarger) {
  const auto file =
      nlohmann::json::parse(std::ifstream(EVENKEEL_SOURCE_DIR "/tests/data/llep_assignment.json"));
  int windows = 0;
  for (const auto& c : file.at("cases")) {
    if (!c.at("name").get<std::string>().starts_with("gptoss20b")) continue;
    ++windows;
    const Counts counts = Counts::of_loads(c.at("loads").get<std::vector<std::int64_t>>(), kRanks);
    const LayerPlacement placement = LayerPlacement::contiguous(counts.num_experts(), kRanks);
    const Outcome level = outcome(PlannerOptions::Kind::level, counts, placement);
    EXPECT_EQ(level.worst, (counts.total() + kRanks - 1) / kRanks) << c.at("name");
    EXPECT_LE(level.worst, outcome(PlannerOptions::Kind::least_loaded, counts, placement).worst);
    const std::int64_t bound = transfer_lower_bound(counts, placement, level.worst);
    EXPECT_LE(level.transfers, std::max<std::int64_t>(kRanks + 1, bound)) << c.at("name");
  }
  EXPECT_EQ(windows, 9);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LevelScenarios, testing::Bool(),
                         [](const auto& layout) { return layout.param ? "Spread" : "First"; });

}  // namespace
}  // namespace evenkeel
