#include "cli/bench_training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string described(std::size_t method, const Training& training) {
  const std::string ours(name_of(training.setup.planner.kind));
  const std::array<std::string, kMethods> methods = {"1  ep, whole, unchunked", "2  ep, 8 chunks",
                                                     "3  ep, mact 1,2,4,8", ours + ", joint"};
  return methods[method];
}

std::pair<int, int> chunk_range(const Training& training, std::size_t method) {
  const auto chunks = [&](const TrainingStep& step) { return step.of(method).chunks; };
  const auto [least, most] = std::ranges::minmax_element(training.steps, {}, chunks);
  return {chunks(*least), chunks(*most)};
}

void print_methods(const Training& training) {
  Table table({"method", "tokens/s", "to 1", "peak", "to 1", "chunks", "again", "beyond budget"});
  const double speed = training.tokens_per_second(0);
  const auto peak = static_cast<double>(training.worst_peak_bytes(0));
  for (std::size_t method = 0; method < kMethods; ++method) {
    const std::int64_t bytes = training.worst_peak_bytes(method);
    const auto [least, most] = chunk_range(training, method);
    table.add({described(method, training), fmt::format("{:.0f}", training.tokens_per_second(method)),
               fmt::format("{:+.1f} %", 100 * (training.tokens_per_second(method) / speed - 1)),
               format_bytes(bytes), fmt::format("{:+.1f} %", 100 * (static_cast<double>(bytes) / peak - 1)),
               least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most),
               fmt::format("{:.0f} %", 100 * training.recomputed_fraction(method)),
               fmt::format("{} of {}", training.steps_beyond(method), training.steps.size())});
  }
  put("{}\n", table.text());
}

// Tokens a second of every step: method 1 beside ours.
void print_steps(const Training& training) {
  constexpr int width = 12;
  constexpr std::size_t ours = kMethods - 1;
  double most = 0;
  for (const TrainingStep& step : training.steps)
    most = std::max({most, step.tokens_per_second(0), step.tokens_per_second(ours)});
  const auto bar_of = [&](const TrainingStep& step, std::size_t method) {
    std::string text = bar(std::llround(step.tokens_per_second(method)), std::llround(most), width);
    text.append(static_cast<std::size_t>(width) - display_width(text), ' ');
    return text;
  };
  Table table({"step", "layer", "max/mean", "A/A", "chunks 3", "ours", "tokens/s 1",
               fmt::format("{:<{}}", "", width), "ours", fmt::format("{:<{}}", "", width)});
  for (const TrainingStep& step : training.steps)
    table.add({fmt::format("{}", step.step), fmt::format("{}", step.layer),
               fmt::format("{:.2f}", step.of(0).balance.max_over_mean),
               fmt::format("+-{:.3f}", step.figures.control.spread), fmt::format("{}", step.of(2).chunks),
               fmt::format("{}", step.of(ours).chunks), fmt::format("{:.0f}", step.tokens_per_second(0)),
               bar_of(step, 0), fmt::format("{:.0f}", step.tokens_per_second(ours)), bar_of(step, ours)});
  print_text(table.text());
}

Json method_json(const CandidateFigures& of) {
  return {{"critical_ms", of.critical_ms},
          {"time_ratio", of.time.median},
          {"time_spread", of.time.spread},
          {"chunks", of.chunks},
          {"recomputed_fraction", of.recomputed_fraction},
          {"transfers", of.transfers},
          {"peak_bytes", of.peak_bytes}};
}

Json json_of(const TrainingStep& step) {
  Json methods = Json::object();
  for (std::size_t method = 0; method < kMethods; ++method) {
    Json& one = methods[std::string(kMethodNames[method])] = method_json(step.of(method));
    one["tokens_per_second"] = step.tokens_per_second(method);
  }
  return {{"step", step.step},
          {"layer", step.layer},
          {"tokens", step.tokens},
          {"max_over_mean", step.of(0).balance.max_over_mean},
          {"control_ratio", step.figures.control.median},
          {"control_spread", step.figures.control.spread},
          {"methods", std::move(methods)}};
}

}  // namespace

void print_training(const Training& training) {
  const TrainingSetup& setup = training.setup;
  put("{}\nevery {}. step of {}, its most skewed layer; {} rounds, min-segment {}\n", layer_of(setup.bench),
      setup.every, setup.file, setup.bench.pairs, setup.planner.min_segment);
  put("budget {} a rank for 3 and ours (least budget {}); 1 and 2 have none\n{}\n\n",
      format_bytes(setup.budget), format_bytes(training.least_budget()), kCriticalPath);
  print_methods(training);
  print_steps(training);
  put("\n  tokens/s: of all steps and all ranks, on the critical path; to 1: to method 1\n"
      "  peak: worst rank, worst step; again: assignments computed again in backward\n"
      "  beyond budget: steps that take more; A/A: spread of method 1 over itself\n");
}

void print_training_json(const Training& training) {
  const TrainingSetup& setup = training.setup;
  Json methods = Json::array();
  for (std::size_t method = 0; method < kMethods; ++method)
    methods.push_back({{"method", kMethodNames[method]},
                       {"tokens_per_second", training.tokens_per_second(method)},
                       {"peak_bytes", training.worst_peak_bytes(method)},
                       {"recomputed_fraction", training.recomputed_fraction(method)},
                       {"steps_beyond_budget", training.steps_beyond(method)}});
  Json steps = Json::array();
  for (const TrainingStep& step : training.steps) steps.push_back(json_of(step));
  const Json json = {{"ranks", setup.bench.ranks},    {"layer", layer_of(setup.bench)},
                     {"pairs", setup.bench.pairs},    {"every", setup.every},
                     {"budget", setup.budget},        {"least_budget", training.least_budget()},
                     {"methods", std::move(methods)}, {"steps", std::move(steps)}};
  print_object(json);
}

}  // namespace evenkeel::cli
