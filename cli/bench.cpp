// evenkeel bench: the scenario table of the LLEP paper and its ablations, on this machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_curve_report.h"
#include "cli/bench_joint_report.h"
#include "cli/bench_report.h"
#include "cli/bench_series.h"
#include "cli/bench_training_report.h"
#include "cli/budget_options.h"
#include "cli/calibrate.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/cost_file.h"

namespace evenkeel::cli {

namespace {

struct BenchArguments {
  BenchSetup setup;
  std::vector<PlannerOptions::Kind> planners = {PlannerOptions::Kind::least_loaded,
                                                PlannerOptions::Kind::level};
  std::string scenarios;
  std::string ablation;
  std::string calibrate;
  std::vector<AskedBudget> over_budget;
  std::vector<AskedBudget> joint;
  std::string training;
  std::int64_t every = 100;
  BudgetOptions budget;
  bool json = false;
};

// Without --scenarios and --pairs: a curve takes many layers.
constexpr const char* kCurveScenario = "concentrated:0.95:1";
constexpr std::int64_t kCurvePairs = 11;
constexpr std::int64_t kJointPairs = 5;     // in each of many scenarios and budgets
constexpr std::int64_t kTrainingPairs = 5;  // of each of many steps

std::vector<BenchRow> measure_all(const std::vector<BenchPoint>& points) {
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::string what = fmt::format("{} ({}/{}): round", points[i].name(), i + 1, points.size());
    for (BenchRow& row : measure_point(points[i], progress_line(what))) rows.push_back(std::move(row));
  }
  return rows;
}

// Modes of bench that take the place of the scenario table.
constexpr const char* kModes[] = {"--ablation", "--calibrate", "--joint", "--over-budget", "--training"};

// Refuses other modes than this one.
void require_only(const CLI::App& app, const std::string& mode) {
  for (const char* other : kModes)
    if (other != mode) refuse_if_given(app, other, fmt::format("excludes {}", mode));
}

void run_calibration(const CLI::App& app, const BenchArguments& options) {
  const char* const why = "is about scenarios, and --calibrate runs none";
  for (const char* option : {"--scenarios", "--tokens", "--planner", "--capacity-factor", "--min-segment",
                             "--imbalance-threshold", "--backward", "--pairs"})
    refuse_if_given(app, option, why);
  refuse_budget_options(app, why);
  require_writable(options.calibrate);
  const Calibration calibration = calibrate(options.setup.layer, static_cast<int>(options.setup.ranks));
  write_cost(calibration.cost, calibration.on, options.calibrate);
  print_calibration(calibration, options.calibrate, options.json);
}

// The one planner that is looked at; level where none is named.
PlannerOptions one_planner(const CLI::App& app, const BenchArguments& options) {
  PlannerOptions planner = options.setup.parameters;
  planner.kind = PlannerOptions::Kind::level;
  if (!is_given(app, "--planner")) return planner;
  planner.kind = options.planners.front();
  if (options.planners.size() > 1 || planner.kind == PlannerOptions::Kind::ep)
    throw InvalidArgument("--planner", "one is looked at, and ep comes by itself", "least-loaded or level");
  return planner;
}

// The budget options of a mode that has budgets, policies and rules of its own.
CostModel only_cost(const CLI::App& app, const BenchArguments& options, const std::string& mode) {
  for (const char* option : {"--recompute", "--chunks", "--bins"})
    refuse_if_given(app, option, fmt::format("is what {} varies", mode));
  return is_given(app, "--cost") ? read_cost(options.budget.cost_file) : CostModel{};
}

NamedProgress named_progress() {
  return [](const std::string& what) { return progress_line(what + ": round"); };
}

void run_curves(const CLI::App& app, BenchArguments& options) {
  refuse_if_given(app, "--budget", "is what --over-budget varies");
  CurveSetup setup{options.setup, one_planner(app, options), options.over_budget,
                   only_cost(app, options, "--over-budget")};
  if (!is_given(app, "--pairs")) setup.bench.pairs = kCurvePairs;
  const std::string filter = is_given(app, "--scenarios") ? options.scenarios : kCurveScenario;
  std::vector<Curve> curves;
  for (const std::string& scenario : scenario_point(setup.bench, filter).scenarios)
    curves.push_back(measure_curve(setup, scenario, named_progress()));
  if (options.json)
    print_curves_json(setup, curves);
  else
    print_curves(setup, curves);
}

// A mode that has rows, one or more of each scenario.
template <class Setup, class Row>
struct RowsMode {
  std::vector<Row> (*measure)(const Setup&, const std::vector<std::string>&, const NamedProgress&);
  void (*print)(const Setup&, const std::vector<Row>&);
  void (*print_json)(const Setup&, const std::vector<Row>&);
  std::int64_t pairs;  // unless said otherwise
};

template <class Setup, class Row>
void run_rows(const CLI::App& app, const BenchArguments& options, Setup setup,
              const RowsMode<Setup, Row>& mode) {
  if (!is_given(app, "--pairs")) setup.bench.pairs = mode.pairs;
  const std::vector<Row> rows =
      mode.measure(setup, scenario_point(setup.bench, options.scenarios).scenarios, named_progress());
  (options.json ? mode.print_json : mode.print)(setup, rows);
}

void run_joint(const CLI::App& app, const BenchArguments& options) {
  refuse_if_given(app, "--budget", "is what --joint varies");
  const JointSetup setup{options.setup, one_planner(app, options), options.joint,
                         only_cost(app, options, "--joint")};
  run_rows(app, options, setup, RowsMode{measure_joint, print_joint, print_joint_json, kJointPairs});
}

void run_training(const CLI::App& app, const BenchArguments& options) {
  refuse_if_given(app, "--scenarios", "is not the routing of --training");
  refuse_if_given(app, "--experts", "is what the file of --training says");
  TrainingSetup setup{options.setup,
                      one_planner(app, options),
                      options.training,
                      options.every,
                      !is_given(app, "--tokens"),
                      options.budget.budget.bytes,
                      only_cost(app, options, "--training")};
  setup.bench.backward = true;
  if (!is_given(app, "--pairs")) setup.bench.pairs = kTrainingPairs;
  const Training training = measure_training(setup, progress_line("round"));
  if (options.json)
    print_training_json(training);
  else
    print_training(training);
}

// An ablation has scenarios of its own, and values of what it varies; tokens and widths go around those
// given.
void require_ablation_alone(const CLI::App& app, const std::string& name) {
  refuse_if_given(app, "--scenarios", "an ablation has scenarios of its own");
  for (const char* fixed : {"capacity-factor", "imbalance-threshold", "experts"})
    if (name == fixed) refuse_if_given(app, fmt::format("--{}", fixed), "is what the ablation varies");
  if (name == "hidden") refuse_if_given(app, "--intermediate", "goes with --hidden in its ablation");
}

void run_table(const CLI::App& app, BenchArguments& options) {
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
  for (const BenchPoint& point : points) require_budget(point);
  if (!options.json) print_bench_head(points.front());
  const std::vector<BenchRow> rows = measure_all(points);
  if (options.json)
    print_bench_json(points.front(), rows);
  else
    print_bench_table(options.setup.budget, rows);
}

void run(const CLI::App& app, BenchArguments& options) {
  for (const char* mode : kModes)
    if (is_given(app, mode)) require_only(app, mode);
  if (!is_given(app, "--training")) refuse_if_given(app, "--every", "is about --training");
  if (is_given(app, "--ablation")) require_ablation_alone(app, options.ablation);
  if (is_given(app, "--calibrate")) return run_calibration(app, options);
  if (is_given(app, "--over-budget")) return run_curves(app, options);
  if (is_given(app, "--joint")) return run_joint(app, options);
  if (is_given(app, "--training")) return run_training(app, options);
  run_table(app, options);
}

}  // namespace

Subcommand add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchArguments>();
  CLI::App* app = command.add_subcommand("bench", "The LLEP paper's scenario table and ablations, measured");
  app->add_option("--scenarios", options->scenarios,
                  "Only the one of this name, or else those whose name contains it, such as 0.95:1")
      ->type_name("TEXT");
  app->add_option("--ablation", options->ablation, fmt::format("Instead, one of: {}", ablation_names()))
      ->type_name("NAME");
  app->add_option("--calibrate", options->calibrate, "Instead, measure what steps are made of, for --cost")
      ->type_name("FILE");
  add_budgets(*app, "--over-budget", options->over_budget,
              "Instead, time over these budgets, such as 50%,16%,9%,64MiB: shares of ep's peak, or sizes");
  add_budgets(*app, "--joint", options->joint,
              "Instead, in these budgets, spill and chunks chosen together against either alone");
  app->add_option("--training", options->training,
                  "Instead, MemFine's three methods and ours over a run: loads [steps, layers, experts]")
      ->type_name("FILE");
  add_whole(*app, "--every", options->every, 1, kAnySize, "With --training: every N-th step");
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
      "  evenkeel bench --calibrate cost.json --hidden 768 --intermediate 768\n"
      "  evenkeel bench --over-budget 50%,16%,9% --backward --tokens 256 --min-segment 128 --pairs 5");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
