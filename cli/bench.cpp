// evenkeel bench: the scenario table of the LLEP paper and its ablations, on this machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/bench_series.h"
#include "cli/budget_options.h"
#include "cli/calibrate.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"

namespace evenkeel::cli {

namespace {

struct Options {
  BenchSetup setup;
  std::vector<PlannerOptions::Kind> planners = {PlannerOptions::Kind::least_loaded,
                                                PlannerOptions::Kind::level};
  std::string scenarios;
  std::string ablation;
  std::string calibrate;
  BudgetOptions budget;
  bool json = false;
};

std::vector<BenchRow> measure_all(const std::vector<BenchPoint>& points) {
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::string what = fmt::format("{} ({}/{}): round", points[i].name(), i + 1, points.size());
    for (BenchRow& row : measure_point(points[i], progress_line(what))) rows.push_back(std::move(row));
  }
  return rows;
}

void run_calibration(const CLI::App& app, const Options& options) {
  const char* const why = "is about scenarios, and --calibrate runs none";
  for (const char* option : {"--scenarios", "--ablation", "--tokens", "--planner", "--capacity-factor",
                             "--min-segment", "--imbalance-threshold", "--backward", "--pairs"})
    refuse_if_given(app, option, why);
  refuse_budget_options(app, why);
  require_writable(options.calibrate);
  const Calibration calibration = calibrate(options.setup.layer, static_cast<int>(options.setup.ranks));
  write_cost(calibration.cost, calibration.on, options.calibrate);
  print_calibration(calibration, options.calibrate, options.json);
}

void run(const CLI::App& app, Options& options) {
  if (is_given(app, "--calibrate")) return run_calibration(app, options);
  if (is_given(app, "--ablation"))
    refuse_if_given(app, "--scenarios", "an ablation has scenarios of its own");
  options.setup.planners.clear();
  for (PlannerOptions::Kind kind : options.planners) {
    if (kind == PlannerOptions::Kind::ep)
      throw InvalidArgument("--planner", "ep is what the others are measured against", "least-loaded, level");
    options.setup.planners.push_back(options.setup.parameters);
    options.setup.planners.back().kind = kind;
  }
  options.setup.budget = budget_of(app, options.budget, options.setup.backward);
  const std::vector<BenchPoint> points = is_given(app, "--ablation")
                                             ? ablation_points(options.setup, options.ablation)
                                             : std::vector{scenario_point(options.setup, options.scenarios)};
  if (!options.json) print_bench_head(points.front());
  const std::vector<BenchRow> rows = measure_all(points);
  if (options.json)
    print_bench_json(points.front(), rows);
  else
    print_bench_table(options.setup.budget, rows);
}

}  // namespace

Subcommand add_bench(CLI::App& command) {
  auto options = std::make_shared<Options>();
  CLI::App* app = command.add_subcommand("bench", "The LLEP paper's scenario table and ablations, measured");
  app->add_option("--scenarios", options->scenarios,
                  "Only those whose name contains this, such as balanced or :1")
      ->type_name("TEXT");
  app->add_option("--ablation", options->ablation, fmt::format("Instead, one of: {}", ablation_names()))
      ->type_name("NAME");
  app->add_option("--calibrate", options->calibrate, "Instead, measure what steps are made of, for --cost")
      ->type_name("FILE");
  BenchSetup& setup = options->setup;
  add_whole(*app, "--tokens", setup.tokens, 0, std::int64_t{1} << 30, "For each rank");
  add_whole(*app, "--ranks", setup.ranks, 1, 1024, "Threads, each with its share of experts and tokens");
  add_layer_options(*app, setup.layer);
  add_planners(*app, options->planners, 3);
  add_planner_parameters(*app, setup.parameters);
  app->add_flag("--backward", setup.backward, "Gradients as well");
  add_budget_options(*app, options->budget);
  add_whole(*app, "--pairs", setup.pairs, 1, 1000000, "Interleaved pairs of ep and each planner");
  add_json(*app, options->json);
  app->footer(
      "Example (minutes rather than hours):\n"
      "  evenkeel bench --scenarios concentrated:0.95 --tokens 256 --min-segment 128 --pairs 5\n"
      "  evenkeel bench --calibrate cost.json --hidden 768 --intermediate 768");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
