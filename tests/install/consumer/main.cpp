// Plans one uneven step and checks the plan, with only evenkeel's public headers.
#include <evenkeel/balance/planner.h>
#include <evenkeel/plan/counts.h>
#include <evenkeel/plan/placement.h>
#include <evenkeel/plan/step_plan.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  // 4 ranks with 2 experts each; 7 in 8 assignments are for expert 0.
  const std::vector<std::int64_t> loads{49'000, 1'000, 1'000, 1'000, 1'000, 1'000, 1'000, 1'000};
  const auto homes = evenkeel::LayerPlacement::contiguous(8, 4);
  const auto planner = evenkeel::make_planner({.kind = evenkeel::PlannerOptions::Kind::least_loaded});
  evenkeel::StepPlan plan;
  planner->plan(evenkeel::Counts::of_loads(loads, 4), homes, plan);

  std::int64_t planned = 0;
  for (const std::int64_t load : plan.rank_loads()) {
    std::printf("%lld\n", static_cast<long long>(load));
    planned += load;
    if (load > 14'000) return 1;  // the mean, which a capacity factor of 1 allows
  }
  return planned == 56'000 && plan.spilled() ? 0 : 1;
}
