// evenkeel bench: the scenario table of the LLEP paper and its ablations, on this machine.
#include <fmt/format.h>

#include <memory>

#include "cli/backend.h"
#include "cli/budget_options.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel::cli {

namespace {

using Kind = PlannerOptions::Kind;

struct BenchArguments {
  LayerOptions layer;
  std::int64_t ranks = 8;
  BackendOptions backend;
  NodeOptions nodes;
  std::int64_t tokens = 2048;
  std::int64_t pairs = 41;
  bool backward = false;
  PlannerOptions parameters;
  std::vector<Kind> planners = {Kind::least_loaded, Kind::level};
  std::string scenarios;
  std::string ablation;
  std::string calibrate;
  std::vector<RequestedBudget> over_budget;
  BudgetOptions budget;
  std::string html;
  bool json = false;
};

// The defaults of --scenarios and --pairs with --over-budget, where each curve runs many layers.
constexpr const char* kCurveScenario = "concentrated:0.95:1";
constexpr int kCurvePairs = 11;

// Modes of bench that take the place of the scenario table.
constexpr const char* kModes[] = {"--ablation", "--calibrate", "--over-budget"};

// Refuses every mode except this one.
void require_only(const CLI::App& app, const std::string& mode) {
  for (const char* other : kModes)
    if (other != mode) refuse_if_given(app, other, fmt::format("cannot be combined with {}", mode));
}

void run_calibration(const CLI::App& app, const BenchArguments& options) {
  const char* const why = "applies only to scenarios, but --calibrate runs none";
  for (const char* option :
       {"--scenarios", "--tokens", "--planner", "--capacity-factor", "--min-segment", "--imbalance-threshold",
        "--backward", "--pairs", "--budget", "--recompute", "--chunks", "--bins", "--cost", "--html",
        "--nodes", "--topology", "--two-levels", "--sum-in-nodes"})
    refuse_if_given(app, option, why);
  require_writable(options.calibrate);
  const Calibration calibration = calibrate(options.layer.shape(), static_cast<int>(options.ranks));
  write_cost(calibration.machine, calibration.on, options.calibrate);
  print_result(CalibrationReport{calibration, options.calibrate}, options.json);
}

StudySetup setup_of(const BenchArguments& options) {
  StudySetup setup{options.layer.shape(),
                   static_cast<std::uint64_t>(options.layer.seed),
                   static_cast<int>(options.ranks),
                   options.tokens,
                   static_cast<int>(options.pairs),
                   options.backward,
                   {},
                   {}};
  for (const Kind kind : options.planners) {
    setup.planners.push_back(options.parameters);
    setup.planners.back().kind = kind;
  }
  return setup;
}

RoundProgress named_progress(const std::string& what) {
  return progress_line(what + ": round");
}

// Runs one planner (default: level) over the budgets, recompute policies and chunk rules that this mode
// varies.
void run_curves(const CLI::App& app, const BenchArguments& options) {
  for (const char* option : {"--nodes", "--topology", "--two-levels", "--sum-in-nodes"})
    refuse_if_given(app, option, "applies only to the scenario table and ablations");
  for (const char* varied : {"--budget", "--recompute", "--chunks", "--bins"})
    refuse_if_given(app, varied, "is varied by --over-budget");
  StudySetup setup = setup_of(options);
  if (!is_given(app, "--planner")) setup.planners = {setup.planners.back()};
  if (setup.planners.size() > 1 || setup.planners.front().kind == Kind::ep)
    throw InvalidArgument("--planner", "takes one planner; ep is the baseline", "least-loaded or level");
  if (is_given(app, "--cost")) setup.budget.memory.cost = read_cost(options.budget.cost_file);
  if (!is_given(app, "--pairs")) setup.pairs = kCurvePairs;
  const std::vector<std::string> scenarios =
      scenario_names(setup, is_given(app, "--scenarios") ? options.scenarios : kCurveScenario);
  show_result(measure_curves(setup, scenarios, options.over_budget, named_progress), options.json,
              options.html);
}

// An ablation chooses its own scenarios, and the values of the setting that it varies. It varies tokens and
// widths around the given values.
void require_ablation_alone(const CLI::App& app, const std::string& name) {
  refuse_if_given(app, "--scenarios", "cannot be combined with --ablation, which has scenarios of its own");
  for (const char* fixed : {"capacity-factor", "imbalance-threshold", "experts"})
    if (name == fixed) refuse_if_given(app, fmt::format("--{}", fixed), "is varied by the ablation");
  if (name == "hidden")
    refuse_if_given(app, "--intermediate", "is varied together with --hidden by the ablation");
}

void run_table(const CLI::App& app, const BenchArguments& options, Communicator* comm) {
  StudySetup setup = setup_of(options);
  setup.where = places_of(app, options.nodes, setup.ranks, comm);
  if (std::ranges::find(setup.planners, Kind::ep, &PlannerOptions::kind) != setup.planners.end())
    throw InvalidArgument("--planner", "ep is what the others are measured against", "least-loaded, level");
  setup.budget = budget_of(app, options.budget, options.backward);
  for (PlannerOptions& planner : setup.planners)
    if (planner.kind == Kind::level)
      planner.links =
          given_links(app, options.nodes, setup.shape, setup.budget.memory.cost, options.backward);
  const Series series = is_given(app, "--ablation")
                            ? measure_ablation(setup, options.ablation, named_progress)
                            : measure_scenarios(setup, options.scenarios, named_progress);
  if (setup.where.is_first()) show_result(series, options.json, options.html);
}

void run(const CLI::App& app, const BenchArguments& options, Communicator* comm) {
  for (const char* mode : kModes)
    if (is_given(app, mode)) require_only(app, mode);
  if (is_given(app, "--ablation")) require_ablation_alone(app, options.ablation);
  if (comm != nullptr)
    for (const char* mode : {"--calibrate", "--over-budget"})
      refuse_if_given(app, mode, "is measured with ranks as threads, not with --backend mpi");
  if (RankPlaces{comm}.is_first())
    require_page(options.html, {}, {options.budget.cost_file, options.nodes.topology});
  if (is_given(app, "--calibrate")) return run_calibration(app, options);
  if (is_given(app, "--over-budget")) return run_curves(app, options);
  run_table(app, options, comm);
}

}  // namespace

Subcommand add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchArguments>();
  CLI::App* app = command.add_subcommand("bench", "The LLEP paper's scenario table and ablations, measured");
  app->add_option("--scenarios", options->scenarios,
                  "Only the scenario of this name, or else all whose name contains it, such as 0.95:1")
      ->type_name("TEXT");
  app->add_option("--ablation", options->ablation, fmt::format("Instead, one of: {}", ablation_names()))
      ->type_name("NAME");
  app->add_option("--calibrate", options->calibrate,
                  "Instead, measure the costs of a step's parts and write them for --cost")
      ->type_name("FILE");
  add_budgets(*app, "--over-budget", options->over_budget,
              "Instead, time under these budgets, such as 50%,16%,9%,64MiB: shares of ep's peak, or sizes");
  add_whole(*app, "--tokens", options->tokens, 0, std::int64_t{1} << 30, "Tokens of each rank");
  add_whole(*app, "--ranks", options->ranks, 1, 1024, "Ranks, each with its share of experts and tokens");
  add_backend(*app, options->backend);
  add_nodes(*app, options->nodes);
  add_layer_options(*app, options->layer);
  add_planners(*app, options->planners, 3);
  add_planner_parameters(*app, options->parameters);
  app->add_flag("--backward", options->backward, "Compute gradients as well");
  add_budget_options(*app, options->budget);
  add_whole(*app, "--pairs", options->pairs, 1, 1000000, "Interleaved pairs of ep and each planner");
  add_html(*app, options->html);
  add_json(*app, options->json);
  app->footer(
      "Example (minutes rather than hours):\n"
      "  evenkeel bench --scenarios concentrated:0.95 --tokens 256 --min-segment 128 --pairs 5\n"
      "  evenkeel bench --calibrate cost.json --hidden 768 --intermediate 768\n"
      "  evenkeel bench --over-budget 50%,16%,9% --backward --tokens 256 --min-segment 128 --pairs 5");
  return {app, [app, options] {
            on_ranks(*app, options->backend, options->ranks,
                     [&](Communicator* comm) { run(*app, *options, comm); });
          }};
}

}  // namespace evenkeel::cli
