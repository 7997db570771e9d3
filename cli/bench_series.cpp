#include "cli/bench_series.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench_layer.h"
#include "cli/experiment_memory.h"
#include "cli/options.h"
#include "cli/rank_layer.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

constexpr std::string_view kBalanced = "balanced";

// The paper's ablations concentrate on 4 experts.
const std::vector<std::string> kAblationScenarios = {"concentrated:0.3:4", "concentrated:0.5:4",
                                                     "concentrated:0.8:4", "concentrated:0.95:4"};
// Thresholds matter where routing is nearly even.
const std::vector<std::string> kMildScenarios = {"concentrated:0.05:4", "concentrated:0.1:4",
                                                 "concentrated:0.2:4", "concentrated:0.3:4"};

// Those that leave some of so many experts for the rest of the assignments.
std::vector<std::string> scenarios_of(std::int64_t num_experts) {
  std::vector<std::string> names = {std::string(kBalanced)};
  for (const char* layout : {"", ":spread"})
    for (const char* share : {"0.3", "0.5", "0.8", "0.95"})
      for (int experts : {1, 4, 16})
        if (experts < num_experts)
          names.push_back(fmt::format("concentrated:{}:{}{}", share, experts, layout));
  return names;
}

BenchPoint point(const BenchSetup& setup, std::string parameter, std::string value,
                 std::vector<std::string> scenarios) {
  return {setup, std::move(parameter), std::move(value), std::move(scenarios)};
}

// A series over numbers that `set` puts into a setup.
template <class Set>
std::vector<BenchPoint> series(const BenchSetup& setup, const std::string& name,
                               const std::vector<std::int64_t>& values,
                               const std::vector<std::string>& scenarios, const Set& set) {
  std::vector<BenchPoint> points;
  for (std::int64_t value : values) {
    BenchSetup changed = setup;
    set(changed, value);
    points.push_back(point(changed, name, fmt::format("{}", value), scenarios));
  }
  return points;
}

template <class Set>
std::vector<BenchPoint> ratio_series(const BenchSetup& setup, const std::string& name,
                                     const std::vector<std::int64_t>& thousandths,
                                     const std::vector<std::string>& scenarios, const Set& set) {
  const auto set_all = [&](BenchSetup& changed, std::int64_t value) {
    for (PlannerOptions& planner : changed.planners) set(planner, value);
  };
  std::vector<BenchPoint> points = series(setup, name, thousandths, scenarios, set_all);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].value = format_thousandths(thousandths[i]);
  return points;
}

// "balanced" comes first where it is among them.
void add_peak_ratios(std::vector<BenchRow>& rows) {
  if (rows.front().scenario != kBalanced) return;
  const Figures& even = rows.front().figures;
  const auto ratio = [](const CandidateFigures& of, const CandidateFigures& to) {
    const std::int64_t base = to.worst_peak_bytes();
    return base == 0 ? 0 : static_cast<double>(of.worst_peak_bytes()) / static_cast<double>(base);
  };
  for (BenchRow& row : rows) {
    row.ep_peak_ratio = ratio(row.figures.reference, even.reference);
    for (std::size_t i = 0; i < even.candidates.size(); ++i)
      row.peak_ratios[i] = ratio(row.figures.candidates[i], even.candidates[i]);
  }
}

}  // namespace

BenchPoint scenario_point(const BenchSetup& setup, const std::string& filter) {
  const std::vector<std::string> all = scenarios_of(setup.layer.experts);
  std::vector<std::string> names = all;
  if (std::ranges::count(names, filter) > 0) return point(setup, "", "", {filter});
  std::erase_if(names, [&](const std::string& name) { return name.find(filter) == std::string::npos; });
  if (names.empty())
    throw InvalidArgument(
        "--scenarios",
        fmt::format("no scenario of {} experts has a name with '{}' in it", setup.layer.experts, filter),
        fmt::format("part of one of: {}", fmt::join(all, ", ")));
  return point(setup, "", "", std::move(names));
}

std::string_view ablation_names() {
  return "tokens, capacity-factor, imbalance-threshold, hidden, experts";
}

std::vector<BenchPoint> ablation_points(const BenchSetup& setup, const std::string& name) {
  const std::int64_t tokens = setup.tokens;
  if (name == "tokens")
    return series(setup, name, {tokens / 8, tokens / 4, tokens / 2, tokens, tokens * 2}, kAblationScenarios,
                  [](BenchSetup& s, std::int64_t value) { s.tokens = value; });
  if (name == "capacity-factor")
    return ratio_series(setup, name, {1000, 1100, 1250, 1500, 2000}, kAblationScenarios,
                        [](PlannerOptions& p, std::int64_t value) { p.capacity_factor_thousandths = value; });
  if (name == "imbalance-threshold")
    return ratio_series(
        setup, name, {0, 1100, 1300, 1500, 2000, 4000}, kMildScenarios,
        [](PlannerOptions& p, std::int64_t value) { p.imbalance_threshold_thousandths = value; });
  if (name == "hidden") {
    const std::int64_t width = setup.layer.hidden;
    return series(setup, name, {width / 3, width * 2 / 3, width, width * 4 / 3, width * 2},
                  kAblationScenarios, [](BenchSetup& s, std::int64_t value) {
                    s.layer.hidden = s.layer.intermediate = std::max<std::int64_t>(1, value);
                  });
  }
  if (name == "experts")
    return series(setup, name, {16, 32, 64, 128, 256}, kAblationScenarios,
                  [](BenchSetup& s, std::int64_t value) { s.layer.experts = value; });
  throw InvalidArgument("--ablation", fmt::format("'{}'", name), std::string(ablation_names()));
}

void require_budget(const BenchPoint& point) {
  const BenchSetup& setup = point.setup;
  const ExperimentSetup experiment =
      unmade_experiment(setup.layer, static_cast<int>(setup.ranks), setup.backward, setup.pairs,
                        plain_ep(setup.budget), candidates_of(setup.planners, setup.budget));
  require_memory(experiment, setup.tokens * setup.ranks);
  require_budgets(experiment, setup.tokens);
}

std::vector<BenchRow> measure_point(const BenchPoint& point, const Progress& progress) {
  const BenchSetup& setup = point.setup;
  const int ranks = static_cast<int>(setup.ranks);
  std::vector<Batch> batches;
  for (const std::string& name : point.scenarios)
    batches.push_back(scenario_batch(name, setup.layer, ranks, setup.tokens));
  const BenchLayer layer(setup.layer, ranks, setup.tokens * ranks, setup.backward);
  std::vector<Figures> figures = measure(
      layer.experiment(setup.pairs, plain_ep(setup.budget), candidates_of(setup.planners, setup.budget)),
      batches, {}, progress);
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < batches.size(); ++i)
    rows.push_back({point.parameter, point.value, batches[i].name, std::move(figures[i]), 0,
                    std::vector<double>(setup.planners.size(), 0.0)});
  add_peak_ratios(rows);
  return rows;
}

}  // namespace evenkeel::cli
