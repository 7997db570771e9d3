// Milliseconds to place all layers, by solver and by size: how the cost grows with layers, experts and ranks.
// Beside the time: the solver's `objective`, its certified lower `bound`, and `gap_of_load`, which is their
// difference divided by the total load (clusters) or by the objective (ranks, joint).
//   build/release/bin/place_benchmark --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {
namespace {

struct Shape {
  int layers;
  int experts;
  int ranks;
};

constexpr Shape kShapes[] = {{24, 32, 8},   {24, 128, 8},  {94, 128, 8},   {58, 256, 8},
                             {58, 256, 16}, {58, 256, 32}, {116, 256, 32}, {61, 384, 64}};

// Loads are lognormal(0, 1), about 20,000 an expert. Transitions are those of independent layers, except that
// some pairs of experts are more frequent.
RoutingProfile make_profile(Shape shape) {
  std::mt19937_64 random(1);
  std::normal_distribution<> normal;
  const auto L = static_cast<std::size_t>(shape.layers);
  const auto E = static_cast<std::size_t>(shape.experts);
  std::vector<double> weights(L * E);
  for (double& weight : weights) weight = std::exp(normal(random));
  std::vector<std::int64_t> loads;
  for (double weight : weights) loads.push_back(std::llround(2e4 * weight));
  std::vector<std::int64_t> transitions;
  transitions.reserve((L - 1) * E * E);
  for (std::size_t layer = 0; layer + 1 < L; ++layer)
    for (std::size_t a = 0; a < E; ++a)
      for (std::size_t b = 0; b < E; ++b) {
        const bool often = random() % 16 == 0;
        transitions.push_back(
            std::llround(50 * weights[layer * E + a] * weights[(layer + 1) * E + b] * (often ? 8 : 1)));
      }
  return {shape.layers, shape.experts, std::move(loads), std::move(transitions)};
}

void report(benchmark::State& state, double objective, double bound, double scale) {
  state.counters["objective"] = objective;
  state.counters["bound"] = bound;
  state.counters["gap_of_load"] = scale > 0 ? (objective - bound) / scale : 0;
}

const SourceCounts no_sources;

// The profile of a shape, cached for consecutive rows with the same shape.
const RoutingProfile& profile_of(Shape shape) {
  static Shape made{};
  static RoutingProfile profile;
  if (made.layers != shape.layers || made.experts != shape.experts) profile = make_profile(shape);
  made = shape;
  return profile;
}

void cluster(benchmark::State& state, Shape shape, ClusterSizes sizes) {
  const RoutingProfile& profile = profile_of(shape);
  const Topology topology = Topology::uniform(1, shape.ranks);
  const PlacementProblem problem{
      .profile = profile, .topology = topology, .sizes = sizes, .sources = no_sources};
  Clustering found;
  for (auto _ : state) found = cluster_fast(problem);
  const auto loads = profile.loads();
  const auto all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  report(state, found.objective, found.bound, static_cast<double>(all));
}

void assign(benchmark::State& state, Shape shape, bool two_level, PairObjective pairs) {
  const RoutingProfile& profile = profile_of(shape);
  const Topology topology =
      two_level ? Topology::uniform(2, shape.ranks / 2, {4, 0}, {1, 0}) : Topology::uniform(1, shape.ranks);
  const PlacementProblem problem{
      .profile = profile, .topology = topology, .pairs = pairs, .sources = no_sources};
  const Clustering clustering = cluster_fast(problem);
  RankAssignment found;
  for (auto _ : state) found = assign_ranks_fast(problem, clustering);
  report(state, found.objective, found.bound, found.objective);
}

void joint(benchmark::State& state, Shape shape, bool two_level) {
  const RoutingProfile& profile = profile_of(shape);
  const Topology topology = two_level ? Topology::uniform(2, shape.ranks / 2, {400, 1}, {50, 5})
                                      : Topology::uniform(1, shape.ranks, {400, 1});
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = no_sources};
  JointSolution found;
  for (auto _ : state) found = place_jointly_fast(problem);
  report(state, found.objective_ms, found.bound_ms, found.objective_ms);
}

template <class F>
void add(const std::string& what, const std::string& links, Shape shape, F run) {
  std::string name = what;
  name += links;
  for (const auto& [key, value] : {std::pair("/layers:", shape.layers), std::pair("/experts:", shape.experts),
                                   std::pair("/ranks:", shape.ranks)})
    name.append(key).append(std::to_string(value));
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond)->MinTime(0.02);
}

void register_all() {
  for (const Shape shape : kShapes) {
    add("clusters/equal", "", shape, [=](auto& state) { cluster(state, shape, ClusterSizes::equal); });
    add("clusters/free", "", shape, [=](auto& state) { cluster(state, shape, ClusterSizes::free); });
    for (bool two_level : {false, true}) {
      const std::string links = two_level ? "/two_level" : "/uniform";
      add("ranks/worst_pair", links, shape,
          [=](auto& state) { assign(state, shape, two_level, PairObjective::worst_pair); });
      add("ranks/total", links, shape,
          [=](auto& state) { assign(state, shape, two_level, PairObjective::total); });
      add("joint", links, shape, [=](auto& state) { joint(state, shape, two_level); });
    }
  }
}

// Runs before main() of benchmark_main.
[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
}  // namespace evenkeel
