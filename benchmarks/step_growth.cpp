// The microseconds that one rank needs to decide a step, and the bytes that ranks exchange before it can.
// Covers 8 ranks up to one rank for each expert. docs/performance.md has the table.
//   build/release/bin/step_growth
#include <algorithm>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/clock.h"
#include "evenkeel/plan/chunk_buffers.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/routes.h"

namespace {

using namespace evenkeel;

constexpr int kTopK = 8;
constexpr std::int64_t kTokens = 1024;  // for each rank

// Each rank's tokens choose by lognormal popularity, with different popular experts on each rank.
std::vector<std::int32_t> choices(int experts, unsigned seed) {
  std::mt19937 popularity(7), random(seed);
  std::lognormal_distribution<> normal(0, 1);
  std::vector<double> weights(static_cast<std::size_t>(experts));
  for (double& weight : weights) weight = normal(popularity);
  std::discrete_distribution<std::int32_t> draw(weights.begin(), weights.end());
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(kTokens * kTopK));
  for (std::int32_t& expert : chosen) expert = draw(random);
  return chosen;
}

template <class Work>
double microseconds(const Work& work) {
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < 30; ++round) {
    const double before = thread_cpu_seconds();
    work();
    least = std::min(least, thread_cpu_seconds() - before);
  }
  return 1e6 * least;
}

void measure(int experts, int ranks) {
  Counts counts(ranks, experts);
  for (int rank = ranks; rank-- > 0;)
    for (const std::int32_t expert : choices(experts, static_cast<unsigned>(rank)))
      ++counts.rows()[static_cast<std::size_t>(rank * experts + expert)];
  counts.sum_loads();
  const LayerPlacement placement = LayerPlacement::contiguous(experts, ranks);
  const auto planner = make_planner({.kind = PlannerOptions::Kind::level, .min_segment = 64});
  StepPlan plan;
  const double planning = microseconds([&] { planner->plan(counts, placement, plan); });
  Deal deal;
  const RankId me(0);
  const double dealing = microseconds([&] { deal.make(counts, plan, me); });
  const std::vector<std::int32_t> chosen = choices(experts, 0);
  const std::size_t own = static_cast<std::size_t>(deal.sent()[0]), all = chosen.size();
  std::vector<std::int32_t> assignments(all), tokens(all),
      messages(all - own + static_cast<std::size_t>(ranks)), own_message(own + 1), result_of(all),
      row_of(static_cast<std::size_t>(kTokens));
  Router router;
  const double routing = microseconds([&] {
    router.send(chosen, kTopK, deal, me,
                {.assignments = assignments,
                 .tokens = tokens,
                 .messages = messages,
                 .own_message = own_message,
                 .result_of = result_of,
                 .first_own = 0,
                 .first_sent = 0,
                 .no_result = -1},
                row_of);
  });
  std::int64_t arrivals = 0;
  std::vector<std::int32_t> taken(static_cast<std::size_t>(ranks));
  const double arriving = microseconds([&] {
    std::int64_t end = 0;
    for_each_arrival(
        deal.arrivals(), taken, [&](std::size_t) { return end; },
        [&](const Arrival& run) { arrivals += static_cast<std::int64_t>(run.count); });
  });
  const std::int64_t told = 4 * ranks * (experts + 7);
  std::printf("| %4d / %4d | %8.1f | %8.1f | %8.1f | %8.1f | %7.1f | %zu |\n", experts, ranks, planning,
              dealing, routing, arriving, static_cast<double>(told) / 1024, plan.transfers().size());
  if (arrivals < 0) std::printf("\n");
}

}  // namespace

int main() {
  std::printf("| experts / ranks | plan us | deal us | routes us | arrivals us | counts KiB | transfers |\n");
  for (const int experts : {64, 256, 512})
    for (int ranks = 8; ranks <= experts; ranks *= 2) measure(experts, ranks);
}
