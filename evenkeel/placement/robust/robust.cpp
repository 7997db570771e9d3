#include "evenkeel/placement/robust/robust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/pool/layer_replicas.h"
#include "evenkeel/placement/robust/internal/robust_layer.h"

namespace evenkeel {

namespace {

struct Sizes {
  std::size_t recordings;
  std::size_t layers;
  std::size_t experts;

  explicit Sizes(const RobustProblem& problem)
      : recordings(static_cast<std::size_t>(problem.num_recordings)),
        layers(static_cast<std::size_t>(problem.of_each.num_layers)),
        experts(static_cast<std::size_t>(problem.of_each.num_experts)) {}
};

void require_recordings(const RobustProblem& problem) {
  const ReplicaProblem& each = problem.of_each;
  if (problem.num_recordings < 1)
    throw InvalidArgument("num_recordings", fmt::format("is {}", problem.num_recordings), "1 or more");
  const Sizes sizes(problem);
  if (each.num_layers < 1 || each.num_experts < 1 ||
      each.loads.size() != sizes.recordings * sizes.layers * sizes.experts)
    throw InvalidArgument("loads", fmt::format("{} numbers", each.loads.size()),
                          fmt::format("{} recordings x {} layers x {} experts", problem.num_recordings,
                                      each.num_layers, each.num_experts));
  for (std::size_t i = 0; i < each.loads.size(); ++i)
    if (!std::isfinite(each.loads[i]) || each.loads[i] < 0)
      throw InvalidArgument(
          "loads",
          fmt::format("recording {}, layer {}, expert {}: {}", i / (sizes.layers * sizes.experts),
                      i / sizes.experts % sizes.layers, i % sizes.experts, each.loads[i]),
          "0 or more, finite");
}

std::vector<double> sum_of_recordings(const RobustProblem& problem) {
  const Sizes sizes(problem);
  std::vector<double> sum(sizes.layers * sizes.experts, 0);
  for (std::size_t i = 0; i < problem.of_each.loads.size(); ++i)
    sum[i % sum.size()] += problem.of_each.loads[i];
  return sum;
}

// Of one layer, [W, E].
std::vector<double> loads_of_layer(const RobustProblem& problem, std::size_t layer) {
  const Sizes sizes(problem);
  std::vector<double> loads;
  for (std::size_t w = 0; w < sizes.recordings; ++w) {
    const auto row = problem.of_each.loads.subspan((w * sizes.layers + layer) * sizes.experts, sizes.experts);
    loads.insert(loads.end(), row.begin(), row.end());
  }
  return loads;
}

// With groups, also what replicate() knows of each recording alone.
double bound_of_groups(const RobustProblem& problem, std::span<const double> loads,
                       const internal::Deadline& deadline) {
  const std::size_t experts = Sizes(problem).experts;
  ReplicaProblem sizes = problem.of_each;
  LayerReplicas solver(sizes, deadline);
  std::vector<std::int32_t> slots(static_cast<std::size_t>(sizes.num_physical));
  double bound = 1;
  for (std::size_t w = 0; w < loads.size() / experts && !deadline.passed(); ++w) {
    const auto of_recording = loads.subspan(w * experts, experts);
    const double total = std::reduce(of_recording.begin(), of_recording.end(), 0.0);
    bound = std::max(bound, solver.solve(of_recording, total, slots).bound);
  }
  return bound;
}

// Of the recording for which it is largest: the mean over layers.
double worst_mean(std::span<const double> max_over_mean, std::size_t layers) {
  double worst = 0;
  for (std::size_t w = 0; w < max_over_mean.size() / layers; ++w) {
    const auto of_recording = max_over_mean.subspan(w * layers, layers);
    worst = std::max(worst, std::reduce(of_recording.begin(), of_recording.end(), 0.0));
  }
  return worst / static_cast<double>(layers);
}

}  // namespace

RobustSolution replicate_robustly(const RobustProblem& problem) {
  require_recordings(problem);
  const Sizes sizes(problem);
  const internal::Deadline deadline(problem.of_each.limits);
  const std::vector<double> sum = sum_of_recordings(problem);
  ReplicaProblem of_sum = problem.of_each;
  of_sum.loads = sum;
  const ReplicaSolution first = replicate(of_sum);

  RobustSolution solution{.placed = first, .max_over_mean = {}};
  solution.max_over_mean.resize(sizes.recordings * sizes.layers);
  std::vector<double> of_first(solution.max_over_mean.size());
  internal::RobustLayer layer(problem.of_each, first.slots_per_rank, deadline);
  const auto slots = static_cast<std::size_t>(problem.of_each.num_physical);
  for (std::size_t l = 0; l < sizes.layers; ++l) {
    const std::vector<double> loads = loads_of_layer(problem, l);
    const auto expert_in = std::span(solution.placed.physical_to_logical).subspan(l * slots, slots);
    layer.read(loads);
    const std::vector<double> before = layer.max_over_mean(expert_in);
    layer.solve(expert_in);
    const std::vector<double> after = layer.max_over_mean(expert_in);
    for (std::size_t w = 0; w < sizes.recordings; ++w) {
      of_first[w * sizes.layers + l] = before[w];
      solution.max_over_mean[w * sizes.layers + l] = after[w];
    }
    double bound = layer.bound();
    if (problem.of_each.num_groups > 1) bound = std::max(bound, bound_of_groups(problem, loads, deadline));
    solution.placed.bound[l] = bound;
  }
  // Each layer's worst recording is no worse, but over layers it need not be the same one.
  if (worst_mean(solution.max_over_mean, sizes.layers) > worst_mean(of_first, sizes.layers)) {
    solution.placed.physical_to_logical = first.physical_to_logical;
    solution.max_over_mean = std::move(of_first);
  }
  for (std::size_t l = 0; l < sizes.layers; ++l) {
    double worst = 0;
    for (std::size_t w = 0; w < sizes.recordings; ++w)
      worst = std::max(worst, solution.max_over_mean[w * sizes.layers + l]);
    solution.placed.max_over_mean[l] = worst;
    solution.placed.bound[l] = std::min(solution.placed.bound[l], worst);
  }
  return solution;
}

}  // namespace evenkeel
