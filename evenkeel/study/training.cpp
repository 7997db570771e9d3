#include "evenkeel/study/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"

namespace evenkeel {

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

Batch batch_of_step(const StudySetup& setup, const TrainingRun& run, const RecordedLoads& recorded,
                    const TrainingStep& step) {
  const int top_k = setup.shape.top_k;
  const std::uint64_t seed = setup.seed + static_cast<std::uint64_t>(step.step);
  const std::span<const std::int64_t> loads = recorded.of(step.step, step.layer);
  const std::int64_t total = run.as_recorded ? std::reduce(loads.begin(), loads.end(), std::int64_t{0})
                                             : setup.tokens * setup.ranks * top_k;
  if (total % top_k != 0)
    throw InvalidArgument("--top-k",
                          fmt::format("{}, but step {} of {} has {} assignments in layer {}", top_k,
                                      step.step, run.file, total, step.layer),
                          "a divisor of that, or --tokens as well");
  return batch_of_loads(fmt::format("step {}", step.step), scaled_loads(loads, total), top_k, setup.ranks,
                        seed);
}

Candidate plain_in(std::int64_t bytes, Recompute recompute, ChunkRule rule) {
  return plain_ep({bytes, {recompute, std::move(rule), {}}});
}

Candidate whole_again() {
  return plain_in(Arena::kNoBudget, Recompute::whole, {});
}

std::vector<Candidate> other_methods(const StudySetup& setup) {
  return {plain_in(Arena::kNoBudget, Recompute::chunk, {ChunkRule::Kind::equal, kFixedChunks}),
          plain_in(setup.budget.bytes, Recompute::chunk, {ChunkRule::Kind::mact}),
          {setup.planners.front(), setup.budget}};
}

// Half of what method 1 takes for the fullest rank there is; no less than runs every routing.
std::int64_t half_of_whole(const ExperimentSetup& experiment, const std::vector<Batch>& batches,
                           const std::vector<TrainingStep>& steps, const RecordedLoads& recorded) {
  const auto fullest = [&](const TrainingStep& step) {
    return fullest_rank(recorded.of(step.step, step.layer), experiment.placement);
  };
  const auto worst = std::ranges::max_element(steps, {}, fullest) - steps.begin();
  const Figures figures = measure(experiment, batches[static_cast<std::size_t>(worst)]);
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
  return std::ranges::count_if(steps, [&](const TrainingStep& step) {
    return step.of(method).worst_peak_bytes() > setup.budget.bytes;
  });
}

Training measure_training(StudySetup setup, const TrainingRun& run, const RoundProgress& progress) {
  const RecordedLoads recorded = read_loads(run.file);
  setup.shape.num_experts = static_cast<int>(recorded.experts);
  const auto placement = LayerPlacement::contiguous(setup.shape.num_experts, setup.ranks);
  std::vector<TrainingStep> steps;
  std::vector<Batch> batches;
  std::int64_t most_tokens = 1;
  for (std::int64_t number = 0; number < recorded.steps; number += run.every) {
    TrainingStep step{number, most_skewed_layer(recorded, number, placement), 0, {}};
    batches.push_back(batch_of_step(setup, run, recorded, step));
    step.tokens = batches.back().num_tokens();
    most_tokens = std::max(most_tokens, step.tokens);
    steps.push_back(std::move(step));
  }
  const LayerInputs inputs = seeded_inputs(setup, most_tokens);
  if (!setup.budget.is_given())
    setup.budget.bytes =
        half_of_whole(experiment_of(setup, inputs, whole_again(), {plain_ep()}, 1), batches, steps, recorded);
  std::vector<Figures> figures = measure(
      experiment_of(setup, inputs, whole_again(), other_methods(setup), setup.pairs), batches, {}, progress);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].figures = std::move(figures[i]);
  return {std::move(setup), run, std::move(steps)};
}

}  // namespace evenkeel
