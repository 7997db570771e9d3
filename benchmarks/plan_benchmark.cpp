// Microseconds to plan one step, by planner, loads, experts and ranks: planning alone, warm, on one core.
// `ep` is the lower limit, since it only writes the plan.
//   build/release/bin/plan_benchmark --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/balance/planner.h"

namespace evenkeel {
namespace {

using Kind = PlannerOptions::Kind;

enum class Loads { balanced, concentrated, lognormal };

// About 32768 assignments a rank; concentrated means 80 % in 4 experts.
Counts make_counts(Loads kind, int experts, int ranks) {
  std::mt19937_64 random(1);
  std::normal_distribution<> normal;
  std::vector<double> weights(static_cast<std::size_t>(experts));
  double sum = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    weights[e] = kind == Loads::lognormal ? std::exp(normal(random)) : 1 + 0.02 * normal(random);
    if (kind == Loads::concentrated && e < 4) weights[e] = experts - 4;
    sum += weights[e];
  }
  std::vector<std::int64_t> loads;
  for (double weight : weights) loads.push_back(std::llround(weight / sum * 32768 * ranks));
  return Counts::of_loads(loads, ranks);
}

void plan_step(benchmark::State& state, Kind planner_kind, Loads loads, int experts, int ranks) {
  const Counts counts = make_counts(loads, experts, ranks);
  const LayerPlacement placement = LayerPlacement::contiguous(experts, ranks);
  const auto planner =
      make_planner({.kind = planner_kind, .min_segment = 64, .imbalance_threshold_thousandths = 0});
  StepPlan plan;
  for (auto _ : state) {
    planner->plan(counts, placement, plan);
    benchmark::DoNotOptimize(plan.rank_loads().data());
  }
  const double worst = static_cast<double>(*std::ranges::max_element(plan.rank_loads()));
  state.counters["transfers"] = static_cast<double>(plan.transfers().size());
  state.counters["max_over_mean"] = worst * ranks / static_cast<double>(counts.total());
}

void register_all() {
  const std::pair<const char*, Loads> loads[] = {
      {"balanced", Loads::balanced}, {"concentrated", Loads::concentrated}, {"lognormal", Loads::lognormal}};
  const std::pair<int, int> shapes[] = {{32, 2},   {32, 8},   {128, 2}, {128, 8}, {128, 16},
                                        {256, 32}, {384, 64}, {512, 8}, {512, 64}};
  for (const Kind planner : {Kind::ep, Kind::least_loaded, Kind::level})
    for (const auto& [load_name, load] : loads)
      for (const auto& [experts, ranks] : shapes) {
        const std::string name = std::string(name_of(planner)) + "/" + load_name +
                                 "/experts:" + std::to_string(experts) + "/ranks:" + std::to_string(ranks);
        benchmark::RegisterBenchmark(name.c_str(), plan_step, planner, load, experts, ranks)
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.02);
      }
}

// Runs before main() of benchmark_main.
[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
}  // namespace evenkeel
