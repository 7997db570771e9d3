// MemFine's methods and ours over a training run, of `evenkeel bench --training`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::Page;

std::string described(std::size_t method, const Training& training) {
  const std::string ours(name_of(training.setup.planners.front().kind));
  const std::array<std::string, kMethods> methods = {"1  ep, whole, unchunked", "2  ep, 8 chunks",
                                                     "3  ep, mact 1,2,4,8", ours + ", joint"};
  return methods[method];
}

std::pair<int, int> chunk_range(const Training& training, std::size_t method) {
  const auto chunks = [&](const TrainingStep& step) { return step.of(method).chunks; };
  const auto [least, most] = std::ranges::minmax_element(training.steps, {}, chunks);
  return {chunks(*least), chunks(*most)};
}

void put_methods(Page& page, const Training& training) {
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
               internal::percent(training.recomputed_fraction(method)),
               fmt::format("{} of {}", training.steps_beyond(method), training.steps.size())});
  }
  page.put(table);
  page.put("\n");
}

// Tokens a second of every step: method 1 beside ours.
void put_steps(Page& page, const Training& training) {
  constexpr int width = 12;
  constexpr std::size_t ours = kMethods - 1;
  double most = 0;
  for (const TrainingStep& step : training.steps)
    most = std::max({most, step.tokens_per_second(0), step.tokens_per_second(ours)});
  const auto bar_of = [&](const TrainingStep& step, std::size_t method) {
    return padded(bar(std::llround(step.tokens_per_second(method)), std::llround(most), width), width);
  };
  Table table({"step", "layer", "max/mean", "A/A", "chunks 3", "ours", "tokens/s 1",
               fmt::format("{:<{}}", "", width), "ours", fmt::format("{:<{}}", "", width)});
  for (const TrainingStep& step : training.steps)
    table.add({fmt::format("{}", step.step), fmt::format("{}", step.layer),
               fmt::format("{:.2f}", step.of(0).balance.max_over_mean),
               fmt::format("+-{:.3f}", step.figures.control.spread), fmt::format("{}", step.of(2).chunks),
               fmt::format("{}", step.of(ours).chunks), fmt::format("{:.0f}", step.tokens_per_second(0)),
               bar_of(step, 0), fmt::format("{:.0f}", step.tokens_per_second(ours)), bar_of(step, ours)});
  page.put(table);
}

Json json_of_step(const TrainingStep& step) {
  Json methods = Json::object();
  for (std::size_t method = 0; method < kMethods; ++method) {
    Json& one = methods[std::string(kMethodNames[method])] =
        internal::json_of(step.of(method), {"critical_ms", "time_ratio", "time_spread", "chunks",
                                            "recomputed_fraction", "transfers", "peak_bytes"});
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

std::string to_text(const Training& training) {
  const StudySetup& setup = training.setup;
  Page page;
  page.put("{}\none step in {} of {}, its most skewed layer; {}, min-segment {}\n",
           internal::layer_line(setup), training.run.every, training.run.file,
           internal::counted(setup.pairs, "round", "rounds"), setup.planners.front().min_segment);
  page.put("budget {} a rank for 3 and ours (least budget {}); 1 and 2 have none\n{}\n\n",
           format_bytes(setup.budget.bytes), format_bytes(training.least_budget()), internal::kCriticalPath);
  put_methods(page, training);
  put_steps(page, training);
  page.put(
      "\n  tokens/s: of all steps and all ranks, on the critical path; to 1: to method 1\n"
      "  peak: worst rank, worst step; again: assignments computed again in backward\n"
      "  beyond budget: steps that take more; A/A: spread of method 1 over itself\n");
  return std::move(page).text();
}

std::string to_json(const Training& training) {
  const StudySetup& setup = training.setup;
  Json json = {{"ranks", setup.ranks},         {"layer", internal::layer_line(setup)},
               {"pairs", setup.pairs},         {"every", training.run.every},
               {"budget", setup.budget.bytes}, {"least_budget", training.least_budget()}};
  for (std::size_t method = 0; method < kMethods; ++method)
    json["methods"].push_back({{"method", kMethodNames[method]},
                               {"tokens_per_second", training.tokens_per_second(method)},
                               {"peak_bytes", training.worst_peak_bytes(method)},
                               {"recomputed_fraction", training.recomputed_fraction(method)},
                               {"steps_beyond_budget", training.steps_beyond(method)}});
  for (const TrainingStep& step : training.steps) json["steps"].push_back(json_of_step(step));
  return internal::line_of(json);
}

}  // namespace evenkeel
