#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <ranges>
#include <span>
#include <utility>

#include "benchmarks/joint_study/load_batch.h"
#include "benchmarks/joint_study/studies.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/report/table.h"

namespace evenkeel::study {

namespace {

constexpr std::int64_t kFixedChunks = 8;
constexpr std::int64_t kMostLoad = std::int64_t{1} << 24;

constexpr std::size_t kMethods = 4;
constexpr std::array<std::string_view, kMethods> kMethodNames = {"whole", "fixed", "mact", "joint"};
constexpr std::size_t kJoint = kMethods - 1;

struct TrainingStep {
  std::int64_t step = 0;
  std::int64_t layer = 0;
  std::int64_t tokens = 0;
  Figures figures;  // method 1 is the reference, the other methods are the candidates

  const CandidateFigures& of(std::size_t method) const {
    return method == 0 ? figures.reference : figures.candidates[method - 1];
  }
  double tokens_per_second(std::size_t method) const {
    return static_cast<double>(tokens) / (1e-3 * of(method).critical_ms);
  }
};

struct Training {
  StudySetup setup;  // the one measured: it has the file's number of experts, and the budget
  std::vector<TrainingStep> steps;

  std::int64_t least_budget() const { return steps.front().of(kJoint).least_budget; }
  // Over all steps.
  double tokens_per_second(std::size_t method) const;
  std::int64_t worst_peak_bytes(std::size_t method) const;
  double recomputed_fraction(std::size_t method) const;  // mean over the steps
  // Steps whose peak exceeds the budget, in which the method would have run out of memory.
  std::int64_t steps_beyond(std::size_t method) const;
};

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

// Half of method 1's peak on the fullest rank of all steps, but no less than the least budget.
std::int64_t half_of_whole(const ExperimentSetup& experiment, const std::vector<Batch>& batches,
                           const std::vector<TrainingStep>& steps, const RecordedLoads& recorded) {
  const auto fullest = [&](const TrainingStep& step) {
    return fullest_rank(recorded.of(step.step, step.layer), experiment.placement);
  };
  const auto worst = std::ranges::max_element(steps, {}, fullest) - steps.begin();
  const Figures figures = measure(experiment, batches[static_cast<std::size_t>(worst)]);
  return std::max(figures.reference.worst_peak_bytes() / 2, figures.candidates.front().least_budget);
}

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

Training measured(StudySetup setup, const TrainingRun& run, const RoundProgress& progress) {
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
  return {std::move(setup), std::move(steps)};
}

std::string described(std::size_t method, const Training& training) {
  const std::array<std::string, kMethods> methods = {
      "1  ep, whole, unchunked", "2  ep, 8 chunks", "3  ep, mact 1,2,4,8",
      fmt::format("{}, joint", name_of(training.setup.planners.front().kind))};
  return methods[method];
}

// "1-4", or "1" if all steps have the same number.
std::string chunk_range(const Training& training, std::size_t method) {
  const auto chunks = [&](const TrainingStep& step) { return step.of(method).chunks; };
  const auto [least, most] = std::ranges::minmax(training.steps | std::views::transform(chunks));
  return least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most);
}

std::string methods_table(const Training& training) {
  Table table({"method", "tokens/s", "to 1", "peak", "to 1", "chunks", "again", "beyond budget"});
  const double speed = training.tokens_per_second(0);
  const auto peak = static_cast<double>(training.worst_peak_bytes(0));
  for (std::size_t method = 0; method < kMethods; ++method) {
    const std::int64_t bytes = training.worst_peak_bytes(method);
    table.add({described(method, training), fmt::format("{:.0f}", training.tokens_per_second(method)),
               fmt::format("{:+.1f} %", 100 * (training.tokens_per_second(method) / speed - 1)),
               format_bytes(bytes), fmt::format("{:+.1f} %", 100 * (static_cast<double>(bytes) / peak - 1)),
               chunk_range(training, method), percent(training.recomputed_fraction(method)),
               fmt::format("{} of {}", training.steps_beyond(method), training.steps.size())});
  }
  return table.text();
}

// Tokens a second of every step: method 1 beside ours.
std::string steps_table(const Training& training) {
  constexpr int width = 12;
  double most = 0;
  for (const TrainingStep& step : training.steps)
    most = std::max({most, step.tokens_per_second(0), step.tokens_per_second(kJoint)});
  const auto bar_of = [&](const TrainingStep& step, std::size_t method) {
    return padded(bar(std::llround(step.tokens_per_second(method)), std::llround(most), width), width);
  };
  const std::string blank(width, ' ');
  Table table({"step", "layer", "max/mean", "A/A", "chunks 3", "ours", "tokens/s 1", blank, "ours", blank});
  for (const TrainingStep& step : training.steps)
    table.add({fmt::format("{}", step.step), fmt::format("{}", step.layer),
               fmt::format("{:.2f}", step.of(0).balance.max_over_mean),
               fmt::format("+-{:.3f}", step.figures.control.spread), fmt::format("{}", step.of(2).chunks),
               fmt::format("{}", step.of(kJoint).chunks), fmt::format("{:.0f}", step.tokens_per_second(0)),
               bar_of(step, 0), fmt::format("{:.0f}", step.tokens_per_second(kJoint)), bar_of(step, kJoint)});
  return table.text();
}

std::string text_of(const Training& training, const TrainingRun& run) {
  const StudySetup& setup = training.setup;
  return fmt::format(
      "{}\none step in {} of {}, its most skewed layer; {}, min-segment {}\n"
      "budget {} a rank for 3 and ours (least budget {}); 1 and 2 have none\n{}\n\n{}\n{}"
      "\n  tokens/s: of all steps and all ranks, on the critical path; to 1: to method 1\n"
      "  peak: worst rank, worst step; again: assignments recomputed in backward\n"
      "  beyond budget: steps that take more; A/A: spread of method 1 over itself\n",
      layer_line(setup), run.every, printable(run.file), rounds(setup.pairs),
      setup.planners.front().min_segment, format_bytes(setup.budget.bytes),
      format_bytes(training.least_budget()), kCriticalPath, methods_table(training), steps_table(training));
}

Json json_of(const TrainingStep& step) {
  Json methods = Json::object();
  for (std::size_t method = 0; method < kMethods; ++method) {
    const CandidateFigures& of = step.of(method);
    Json one = {
        {"critical_ms", of.critical_ms}, {"time_ratio", of.time.median}, {"time_spread", of.time.spread}};
    one.update(json_of_figures(of));
    one["tokens_per_second"] = step.tokens_per_second(method);
    methods[std::string(kMethodNames[method])] = std::move(one);
  }
  return {{"step", step.step},
          {"layer", step.layer},
          {"tokens", step.tokens},
          {"max_over_mean", step.of(0).balance.max_over_mean},
          {"control_ratio", step.figures.control.median},
          {"control_spread", step.figures.control.spread},
          {"methods", std::move(methods)}};
}

Json json_of(const Training& training, const TrainingRun& run) {
  const StudySetup& setup = training.setup;
  Json json = {{"ranks", setup.ranks},         {"layer", layer_line(setup)},
               {"pairs", setup.pairs},         {"every", run.every},
               {"budget", setup.budget.bytes}, {"least_budget", training.least_budget()}};
  for (std::size_t method = 0; method < kMethods; ++method)
    json["methods"].push_back({{"method", kMethodNames[method]},
                               {"tokens_per_second", training.tokens_per_second(method)},
                               {"peak_bytes", training.worst_peak_bytes(method)},
                               {"recomputed_fraction", training.recomputed_fraction(method)},
                               {"steps_beyond_budget", training.steps_beyond(method)}});
  for (const TrainingStep& step : training.steps) json["steps"].push_back(json_of(step));
  return json;
}

}  // namespace

Report over_training(StudySetup setup, const TrainingRun& run, const RoundProgress& progress) {
  const Training training = measured(std::move(setup), run, progress);
  return {text_of(training, run), json_of(training, run)};
}

}  // namespace evenkeel::study
