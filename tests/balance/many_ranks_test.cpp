// Planners take seconds for the largest rank count of a file; work per pair of ranks would take minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/transfer_bound.h"
#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

constexpr int kRanks = 65536;

// Time to make a plan and to bound its transfers.
double seconds_of(const PlannerOptions& options, const Counts& counts, const LayerPlacement& placement) {
  const auto planner = make_planner(options);
  StepPlan plan;
  const auto begin = std::chrono::steady_clock::now();
  planner->plan(counts, placement, plan);
  const std::int64_t bound = transfer_lower_bound(counts, placement, std::ranges::max(plan.rank_loads()));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(bound, static_cast<std::int64_t>(plan.transfers().size()));
  return seconds;
}

std::vector<std::int64_t> some_loads(std::size_t experts, std::int64_t most) {
  std::mt19937_64 random(3);
  std::vector<std::int64_t> loads(experts);
  for (std::int64_t& load : loads)
    load = draw(random, 0, 9) == 0 ? draw(random, 0, 8 * most) : draw(random, 0, most);
  return loads;
}

TEST(ManyRanks, ArePlannedInSeconds) {
  for (const auto kind :
       {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded, PlannerOptions::Kind::level})
    for (const std::vector<std::int64_t>& loads :
         {std::vector<std::int64_t>{9000, 500, 300, 200},
          std::vector<std::int64_t>{900'000'000, 50'000'000, 30'000'000, 20'000'000},
          some_loads(std::size_t{2} * kRanks, 5000)})
      for (const std::int64_t min_segment : {1, 1024}) {
        // When many ranks send, segments about as large as the load differences take long to repair.
        if (min_segment > 1 && loads.size() > 4) continue;
        const auto experts = static_cast<int>(loads.size());
        const double seconds =
            seconds_of({.kind = kind, .min_segment = min_segment}, Counts::of_loads(loads, kRanks),
                       LayerPlacement::contiguous(experts, kRanks));
        EXPECT_LT(seconds, 10) << static_cast<int>(kind) << ' ' << experts << ' ' << min_segment;
      }
}

}  // namespace
}  // namespace evenkeel
