// Milliseconds to place redundant experts, by shape, and to improve a live placement with a limited number of
// moves. Beside each time: gap_percent, the largest possible distance from the optimum, by the certified
// bound.
//   build/release/bin/replica_benchmark --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/incremental/incremental.h"
#include "evenkeel/placement/replicas/eplb.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "evenkeel/placement/robust/robust.h"

namespace evenkeel {
namespace {

struct Shape {
  int layers = 58;
  int experts = 256;
  int slots = 288;
  int ranks = 32;
  int nodes = 1;
  int groups = 1;

  std::string name() const {
    return std::to_string(layers) + "x" + std::to_string(experts) + "/slots:" + std::to_string(slots) +
           "/ranks:" + std::to_string(ranks) + (groups > 1 ? "/nodes:" + std::to_string(nodes) : "") +
           (groups > 1 ? "/groups:" + std::to_string(groups) : "");
  }
};

// A million assignments a layer, lognormal over the experts.
std::vector<double> make_loads(const Shape& s, std::uint64_t seed, double sigma = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<> normal;
  std::vector<double> loads(static_cast<std::size_t>(s.layers) * static_cast<std::size_t>(s.experts));
  for (double& load : loads) load = std::round(4096 * std::exp(sigma * normal(random)));
  return loads;
}

double mean(const std::vector<double>& values) {
  return std::reduce(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void place(benchmark::State& state, const Shape& s) {
  const std::vector<double> loads = make_loads(s, 1);
  ReplicaSolution solution;
  for (auto _ : state)
    solution = replicate({s.layers, s.experts, loads, s.slots, s.ranks, s.nodes, s.groups});
  double gap = 0;
  for (std::size_t l = 0; l < solution.bound.size(); ++l)
    gap += solution.max_over_mean[l] / solution.bound[l] - 1;
  state.counters["max_over_mean"] = mean(solution.max_over_mean);
  state.counters["gap_percent"] = 100 * gap / s.layers;
}

void call_like_eplb(benchmark::State& state, const Shape& s) {
  const std::vector<double> loads = make_loads(s, 1);
  for (auto _ : state)
    benchmark::DoNotOptimize(
        rebalance_experts({s.layers, s.experts, loads, s.slots, s.groups, s.nodes, s.ranks}).max_count);
}

// Several recordings of one model, with correlation one half.
void place_robustly(benchmark::State& state, const Shape& s, int recordings) {
  std::mt19937_64 random(1);
  std::normal_distribution<> normal;
  const auto cells = static_cast<std::size_t>(s.layers) * static_cast<std::size_t>(s.experts);
  std::vector<double> loads(static_cast<std::size_t>(recordings) * cells);
  for (std::size_t at = 0; at < cells; ++at) {
    const double common = normal(random);
    for (std::size_t w = 0; w < static_cast<std::size_t>(recordings); ++w)
      loads[w * cells + at] = std::round(4096 * std::exp(std::sqrt(0.5) * (common + normal(random))));
  }
  RobustSolution solution;
  for (auto _ : state)
    solution =
        replicate_robustly({.num_recordings = recordings,
                            .of_each = {s.layers, s.experts, loads, s.slots, s.ranks, s.nodes, s.groups}});
  double worst = 0;
  for (int w = 0; w < recordings; ++w) {
    const auto of_recording = solution.max_over_mean.begin() + w * s.layers;
    worst = std::max(worst, std::reduce(of_recording, of_recording + s.layers) / s.layers);
  }
  state.counters["worst_recording"] = worst;
  state.counters["layers_worst"] = mean(solution.placed.max_over_mean);
  state.counters["bound"] = mean(solution.placed.bound);
}

// The live placement was made from loads that have drifted since then.
void improve(benchmark::State& state, const Shape& s, int max_moves) {
  std::vector<double> loads = make_loads(s, 1);
  const Placement live = placement_of(replicate({s.layers, s.experts, loads, s.slots, s.ranks}), s.experts);
  const std::vector<double> drift = make_loads(s, 2, 0.25);
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i] *= drift[i];
  for (auto _ : state) {
    const IncrementalResult result = place_incrementally({live, loads, max_moves});
    state.counters["moves"] = result.moves;
    state.counters["before"] = mean(result.max_over_mean_before);
    state.counters["max_over_mean"] = mean(result.max_over_mean);
  }
}

void register_all() {
  const auto add = [](const std::string& name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.05);
  };
  const Shape shapes[] = {{},
                          {.nodes = 4, .groups = 8},
                          {.nodes = 8, .groups = 8},
                          {.layers = 24, .experts = 32, .slots = 40, .ranks = 8},
                          {.layers = 61, .experts = 384, .slots = 416, .ranks = 32},
                          // growth: each row changes one number
                          {.layers = 1},
                          {.layers = 116},
                          {.experts = 128},
                          {.experts = 512, .slots = 544},
                          {.slots = 256},
                          {.slots = 320},
                          {.slots = 512},
                          {.ranks = 8},
                          {.ranks = 72},
                          {.ranks = 144},
                          {.ranks = 288}};
  for (const Shape& s : shapes) add("replicate/" + s.name(), place, s);
  for (const Shape& s : {shapes[0], shapes[1], shapes[3], shapes[4]})
    add("rebalance_experts/" + s.name(), call_like_eplb, s);
  for (int moves : {10, 100, 1000})
    add("incremental/moves:" + std::to_string(moves), improve, shapes[0], moves);
  const auto add_robust = [&](const Shape& s, int recordings) {
    add("robust/" + s.name() + "/recordings:" + std::to_string(recordings), place_robustly, s, recordings);
  };
  for (int recordings : {1, 2, 3, 6, 12, 24}) add_robust(shapes[0], recordings);
  add_robust(shapes[1], 3);
  for (const Shape& s : {Shape{.experts = 128, .slots = 160}, Shape{.experts = 512, .slots = 576},
                         Shape{.ranks = 8}, Shape{.ranks = 72}, Shape{.ranks = 144}})
    add_robust(s, 3);
}

// Runs before main() of benchmark_main.
[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
}  // namespace evenkeel
