#include "evenkeel/balance/plan_time.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace evenkeel {

double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan) {
  using Clock = std::chrono::steady_clock;
  constexpr std::ptrdiff_t warm_ups = 20;
  constexpr std::ptrdiff_t most = 5000;
  std::vector<double> us;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    planner.plan(counts, placement, plan);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  } while (std::ssize(us) < most && Clock::now() - begin < std::chrono::milliseconds(50));
  const auto timed = us.begin() + std::min(warm_ups, std::ssize(us) - 1);
  const auto median = timed + (us.end() - timed) / 2;
  std::ranges::nth_element(timed, median, us.end());
  return *median;
}

}  // namespace evenkeel
