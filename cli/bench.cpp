// evenkeel bench: the scenario table of the LLEP paper and its ablations, on this machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/bench_series.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

struct Options {
  BenchSetup setup;
  std::vector<PlannerOptions::Kind> planners = {PlannerOptions::Kind::least_loaded,
                                                PlannerOptions::Kind::level};
  std::string scenarios;
  std::string ablation;
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

void run(const CLI::App& app, Options& options) {
  if (is_given(app, "--ablation"))
    refuse_if_given(app, "--scenarios", "an ablation has scenarios of its own");
  options.setup.planners.clear();
  for (PlannerOptions::Kind kind : options.planners) {
    if (kind == PlannerOptions::Kind::ep)
      throw InvalidArgument("--planner", "ep is what the others are measured against", "least-loaded, level");
    options.setup.planners.push_back(options.setup.parameters);
    options.setup.planners.back().kind = kind;
  }
  const std::vector<BenchPoint> points = is_given(app, "--ablation")
                                             ? ablation_points(options.setup, options.ablation)
                                             : std::vector{scenario_point(options.setup, options.scenarios)};
  if (!options.json) print_bench_head(points.front());
  const std::vector<BenchRow> rows = measure_all(points);
  if (options.json)
    print_bench_json(points.front(), rows);
  else
    print_bench_table(rows);
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
  BenchSetup& setup = options->setup;
  add_whole(*app, "--tokens", setup.tokens, 0, std::int64_t{1} << 30, "For each rank");
  add_whole(*app, "--ranks", setup.ranks, 1, 1024, "Threads, each with its share of experts and tokens");
  add_layer_options(*app, setup.layer);
  add_planners(*app, options->planners, 3);
  add_planner_parameters(*app, setup.parameters);
  app->add_flag("--backward", setup.backward, "Gradients as well");
  add_whole(*app, "--pairs", setup.pairs, 1, 1000000, "Interleaved pairs of ep and each planner");
  add_json(*app, options->json);
  app->footer(
      "Example (minutes rather than hours):\n"
      "  evenkeel bench --scenarios concentrated:0.95 --tokens 256 --min-segment 128 --pairs 5");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
