#include "cli/bench_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cli/bench_layer.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t kFixedChunks = 8;
constexpr std::int64_t kMostLoad = std::int64_t{1} << 24;

struct RecordedLoads {
  std::int64_t steps = 0;
  std::int64_t layers = 0;
  std::int64_t experts = 0;
  std::vector<std::int64_t> loads;

  std::span<const std::int64_t> of(std::int64_t step, std::int64_t layer) const {
    return std::span(loads).subspan(static_cast<std::size_t>((step * layers + layer) * experts),
                                    static_cast<std::size_t>(experts));
  }
};

RecordedLoads read_loads(const std::string& path) {
  const auto file = open_array_file(path);
  const std::string name = name_of_counts(*file);
  IntArray array = read_integers(*file, name);
  if (array.shape.size() != 3 || array.values.empty())
    throw ParseError(path, name, "is not [steps, layers, experts] of assignments");
  for (const std::int64_t load : array.values)
    if (load < 0 || load > kMostLoad)
      throw ParseError(path, name, fmt::format("has {}, which is no load", load));
  return {array.shape[0], array.shape[1], array.shape[2], std::move(array.values)};
}

std::int64_t fullest_rank(std::span<const std::int64_t> loads, const LayerPlacement& placement) {
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(placement.num_ranks())) {
    std::int64_t sum = 0;
    for (ExpertId expert : placement.natives(rank)) sum += loads[expert.offset()];
    most = std::max(most, sum);
  }
  return most;
}

std::int64_t most_skewed_layer(const RecordedLoads& recorded, std::int64_t step,
                               const LayerPlacement& placement) {
  std::int64_t worst = 0;
  for (std::int64_t layer = 1; layer < recorded.layers; ++layer)
    if (fullest_rank(recorded.of(step, layer), placement) > fullest_rank(recorded.of(step, worst), placement))
      worst = layer;
  return worst;
}

Batch batch_of_step(const TrainingSetup& setup, const RecordedLoads& recorded, const TrainingStep& step) {
  const int ranks = static_cast<int>(setup.bench.ranks);
  const int top_k = static_cast<int>(setup.bench.layer.top_k);
  const auto seed = static_cast<std::uint64_t>(setup.bench.layer.seed + step.step);
  const std::string name = fmt::format("step {}", step.step);
  const std::span<const std::int64_t> loads = recorded.of(step.step, step.layer);
  if (!setup.as_recorded)
    return batch_of_loads(name, scaled_loads(loads, setup.bench.tokens * ranks * top_k), top_k, ranks, seed);
  const std::int64_t total = std::reduce(loads.begin(), loads.end(), std::int64_t{0});
  if (total % top_k != 0)
    throw InvalidArgument("--top-k",
                          fmt::format("{}, but step {} of {} has {} assignments in layer {}", top_k,
                                      step.step, setup.file, total, step.layer),
                          "a divisor of that, or --tokens as well");
  return batch_of_loads(name, loads, top_k, ranks, seed);
}

Candidate plain_in(std::int64_t bytes, Recompute recompute, ChunkRule rule) {
  return plain_ep({bytes, {recompute, std::move(rule), {}}});
}

Candidate whole_again() {
  return plain_in(Arena::kNoBudget, Recompute::whole, {});
}

std::vector<Candidate> other_methods(const TrainingSetup& setup) {
  return {plain_in(Arena::kNoBudget, Recompute::chunk, {ChunkRule::Kind::equal, kFixedChunks}),
          plain_in(setup.budget, Recompute::chunk, {ChunkRule::Kind::mact}),
          {setup.planner, {setup.budget, {Recompute::automatic, {}, setup.cost}}}};
}

// Half of what method 1 takes for the fullest rank there is; no less than runs every routing.
std::int64_t half_of_whole(const BenchLayer& layer, const std::vector<Batch>& batches,
                           const std::vector<TrainingStep>& steps, const RecordedLoads& recorded) {
  const ExperimentSetup experiment = layer.experiment(1, whole_again(), {plain_ep({})});
  const auto fullest = [&](const TrainingStep& step) {
    return fullest_rank(recorded.of(step.step, step.layer), experiment.placement);
  };
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(steps, {}, fullest) - steps.begin());
  const Figures figures = std::move(measure(experiment, {batches[worst]}).front());
  return std::max(figures.reference.worst_peak_bytes() / 2, figures.candidates.front().least_budget);
}

}  // namespace

double Training::tokens_per_second(std::size_t method) const {
  double tokens = 0;
  double seconds = 0;
  for (const TrainingStep& step : steps) {
    tokens += static_cast<double>(step.tokens);
    seconds += 1e-3 * step.of(method).critical_ms;
  }
  return tokens / seconds;
}

std::int64_t Training::worst_peak_bytes(std::size_t method) const {
  std::int64_t most = 0;
  for (const TrainingStep& step : steps) most = std::max(most, step.of(method).worst_peak_bytes());
  return most;
}

double Training::recomputed_fraction(std::size_t method) const {
  double sum = 0;
  for (const TrainingStep& step : steps) sum += step.of(method).recomputed_fraction;
  return sum / static_cast<double>(steps.size());
}

std::int64_t Training::steps_beyond(std::size_t method) const {
  return std::ranges::count_if(
      steps, [&](const TrainingStep& step) { return step.of(method).worst_peak_bytes() > setup.budget; });
}

Training measure_training(TrainingSetup setup, const Progress& progress) {
  const RecordedLoads recorded = read_loads(setup.file);
  setup.bench.layer.experts = recorded.experts;
  const int ranks = static_cast<int>(setup.bench.ranks);
  const auto placement = LayerPlacement::contiguous(static_cast<int>(recorded.experts), ranks);
  std::vector<TrainingStep> steps;
  std::vector<Batch> batches;
  std::int64_t most_tokens = 1;
  for (std::int64_t number = 0; number < recorded.steps; number += setup.every) {
    TrainingStep step{number, most_skewed_layer(recorded, number, placement), 0, {}};
    batches.push_back(batch_of_step(setup, recorded, step));
    step.tokens = batches.back().num_tokens();
    most_tokens = std::max(most_tokens, step.tokens);
    steps.push_back(std::move(step));
  }
  const BenchLayer layer(setup.bench.layer, ranks, most_tokens, true);
  if (setup.budget == Arena::kNoBudget) setup.budget = half_of_whole(layer, batches, steps, recorded);
  std::vector<Figures> figures = measure(
      layer.experiment(setup.bench.pairs, whole_again(), other_methods(setup)), batches, {}, progress);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].figures = std::move(figures[i]);
  return {std::move(setup), std::move(steps)};
}

}  // namespace evenkeel::cli
