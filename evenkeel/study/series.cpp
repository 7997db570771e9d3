#include "evenkeel/study/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

constexpr std::string_view kBalanced = "balanced";

// All scenarios in which some of the `num_experts` experts are left for the rest of the assignments.
std::vector<std::string> scenarios_of(std::int64_t num_experts) {
  std::vector<std::string> names = {std::string(kBalanced)};
  for (const char* layout : {"", ":spread"})
    for (const char* share : {"0.3", "0.5", "0.8", "0.95"})
      for (int experts : {1, 4, 16})
        if (experts < num_experts)
          names.push_back(fmt::format("concentrated:{}:{}{}", share, experts, layout));
  return names;
}

// One layer and the scenarios to run on it.
struct Point {
  StudySetup setup;
  std::string value;
  std::vector<std::string> scenarios;
};

// The values that an ablation uses for its parameter.
struct Ablation {
  std::vector<std::int64_t> values;
  std::function<void(StudySetup&, std::int64_t)> set;
  bool in_thousandths = false;
  bool mild = false;  // uses nearly even routing, where thresholds matter

  // As in the paper's ablations, assignments concentrate on 4 experts.
  std::vector<std::string> scenarios() const {
    if (mild)
      return {"concentrated:0.05:4", "concentrated:0.1:4", "concentrated:0.2:4", "concentrated:0.3:4"};
    return {"concentrated:0.3:4", "concentrated:0.5:4", "concentrated:0.8:4", "concentrated:0.95:4"};
  }
  // "1.25" for 1250 thousandths.
  std::string text_of(std::int64_t value) const {
    return in_thousandths ? format_thousandths(value) : fmt::format("{}", value);
  }
};

Ablation ablation_of(const StudySetup& setup, const std::string& parameter) {
  const std::int64_t tokens = setup.tokens;
  const std::int64_t width = setup.shape.expert.hidden;
  const auto of_planners = [](std::int64_t PlannerOptions::*option) {
    return [option](StudySetup& s, std::int64_t value) {
      for (PlannerOptions& planner : s.planners) planner.*option = value;
    };
  };
  if (parameter == "tokens")
    return {{tokens / 8, tokens / 4, tokens / 2, tokens, tokens * 2},
            [](StudySetup& s, std::int64_t value) { s.tokens = value; }};
  if (parameter == "capacity-factor")
    return {{1000, 1100, 1250, 1500, 2000}, of_planners(&PlannerOptions::capacity_factor_thousandths), true};
  if (parameter == "imbalance-threshold")
    return {{0, 1100, 1300, 1500, 2000, 4000},
            of_planners(&PlannerOptions::imbalance_threshold_thousandths),
            true,
            true};
  if (parameter == "hidden")
    return {{width / 3, width * 2 / 3, width, width * 4 / 3, width * 2},
            [](StudySetup& s, std::int64_t value) {
              s.shape.expert.hidden = s.shape.expert.intermediate = std::max<std::int64_t>(1, value);
            }};
  if (parameter == "experts")
    return {{16, 32, 64, 128, 256},
            [](StudySetup& s, std::int64_t value) { s.shape.num_experts = static_cast<int>(value); }};
  throw InvalidArgument("--ablation", fmt::format("'{}'", parameter), std::string(ablation_names()));
}

// Compares peaks with those of "balanced", which is the first row if it is among the scenarios.
void add_peak_ratios(std::vector<SeriesRow>& rows) {
  if (rows.front().scenario != kBalanced) return;
  const Figures& even = rows.front().figures;
  const auto ratio = [](const CandidateFigures& of, const CandidateFigures& to) {
    const std::int64_t base = to.worst_peak_bytes();
    return base == 0 ? 0 : static_cast<double>(of.worst_peak_bytes()) / static_cast<double>(base);
  };
  for (SeriesRow& row : rows) {
    row.ep_peak_ratio = ratio(row.figures.reference, even.reference);
    for (std::size_t i = 0; i < even.candidates.size(); ++i)
      row.peak_ratios[i] = ratio(row.figures.candidates[i], even.candidates[i]);
  }
}

std::vector<SeriesRow> measure_point(const Point& point, const RoundProgress& progress) {
  std::vector<Batch> batches;
  for (const std::string& name : point.scenarios) batches.push_back(scenario_batch(point.setup, name));
  const LayerInputs inputs = seeded_inputs(point.setup, point.setup.tokens * point.setup.ranks);
  ExperimentSetup experiment = experiment_of(point.setup);
  experiment.inputs = &inputs;
  std::vector<Figures> figures = measure(experiment, batches, {}, progress);
  std::vector<SeriesRow> rows;
  for (std::size_t i = 0; i < batches.size(); ++i)
    rows.push_back({point.value, batches[i].name, std::move(figures[i]), 0,
                    std::vector<double>(point.setup.planners.size(), 0.0)});
  add_peak_ratios(rows);
  return rows;
}

Series measure_points(const std::string& parameter, const std::vector<Point>& points,
                      const NamedProgress& progress) {
  for (const Point& point : points) {
    const ExperimentSetup experiment = experiment_of(point.setup);
    require_memory(experiment, point.setup.tokens * point.setup.ranks);
    require_budgets(experiment, point.setup.tokens);
  }
  Series series{points.front().setup, parameter, {}};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::string what = parameter.empty() ? "scenarios" : parameter + " " + points[i].value;
    const std::string of_all = fmt::format("{} ({}/{})", what, i + 1, points.size());
    for (SeriesRow& row : measure_point(points[i], progress(of_all))) series.rows.push_back(std::move(row));
  }
  return series;
}

}  // namespace

std::vector<std::string> scenario_names(const StudySetup& setup, const std::string& filter) {
  const std::vector<std::string> all = scenarios_of(setup.shape.num_experts);
  if (std::ranges::count(all, filter) > 0) return {filter};
  std::vector<std::string> names = all;
  std::erase_if(names, [&](const std::string& name) { return name.find(filter) == std::string::npos; });
  if (names.empty())
    throw InvalidArgument(
        "--scenarios",
        fmt::format("with {} experts, no scenario name contains '{}'", setup.shape.num_experts, filter),
        fmt::format("part of one of: {}", fmt::join(all, ", ")));
  return names;
}

std::string_view ablation_names() {
  return "tokens, capacity-factor, imbalance-threshold, hidden, experts";
}

Series measure_scenarios(const StudySetup& setup, const std::string& filter, const NamedProgress& progress) {
  return measure_points("", {{setup, "", scenario_names(setup, filter)}}, progress);
}

Series measure_ablation(const StudySetup& setup, const std::string& parameter,
                        const NamedProgress& progress) {
  const Ablation ablation = ablation_of(setup, parameter);
  std::vector<Point> points;
  for (const std::int64_t value : ablation.values) {
    points.push_back({setup, ablation.text_of(value), ablation.scenarios()});
    ablation.set(points.back().setup, value);
  }
  return measure_points(parameter, points, progress);
}

}  // namespace evenkeel
