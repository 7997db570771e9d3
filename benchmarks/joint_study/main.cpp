// Compares the joint choice of spill and chunks, as a step under a budget makes it, with the alternatives.
//
//   joint_study budgets 16%,9%     the LLEP paper's scenarios, against spill or chunks alone
//   joint_study training LOADS     the steps of a training run: against MemFine's three methods
//
// docs/log/budget.md has the results, and what they mean.
#include <CLI/CLI.hpp>

#include "benchmarks/joint_study/studies.h"
#include "cli/budget_options.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/study/series.h"

namespace evenkeel::study {

namespace {

using Kind = PlannerOptions::Kind;

// The options of `evenkeel bench` that both studies share.
struct Options {
  cli::LayerOptions layer;
  std::int64_t ranks = 8;
  std::int64_t tokens = 2048;
  std::int64_t pairs = 5;
  bool backward = false;
  std::vector<Kind> planners = {Kind::level};
  PlannerOptions parameters;
  std::string cost;
  bool json = false;

  StudySetup setup() const {
    if (planners.front() == Kind::ep)
      throw InvalidArgument("--planner", "ep is the baseline", "least-loaded or level");
    StudySetup setup{layer.shape(),
                     static_cast<std::uint64_t>(layer.seed),
                     static_cast<int>(ranks),
                     tokens,
                     static_cast<int>(pairs),
                     backward,
                     {parameters},
                     {}};
    setup.planners.front().kind = planners.front();
    if (!cost.empty()) setup.budget.memory.cost = read_cost(cost);
    return setup;
  }
};

void add_options(CLI::App& app, Options& options) {
  cli::add_whole(app, "--ranks", options.ranks, 1, 1024,
                 "Ranks: threads, each with its share of experts and tokens");
  cli::add_whole(app, "--tokens", options.tokens, 0, std::int64_t{1} << 30, "Tokens on each rank");
  cli::add_layer_options(app, options.layer);
  cli::add_planners(app, options.planners, 1);
  cli::add_planner_parameters(app, options.parameters);
  cli::add_whole(app, "--pairs", options.pairs, 1, 1000000, "Rounds");
  app.add_option("--cost", options.cost, "File written by evenkeel bench --calibrate")->type_name("FILE");
  cli::add_json(app, options.json);
}

int run(int argc, char** argv) {
  CLI::App app("Compares the joint choice of spill and chunks with what else fits in a budget.",
               "joint_study");
  app.require_subcommand(1);
  Options options;

  CLI::App* const budgets =
      app.add_subcommand("budgets", "Compare with spill or chunks alone, over scenarios");
  std::vector<RequestedBudget> asked;
  std::string scenarios;
  cli::add_budgets(*budgets, "budgets", asked, "Shares of ep's peak, or sizes: 16%,9%,64MiB")->required();
  budgets->add_option("--scenarios", scenarios, "Only scenarios whose name contains this")->type_name("TEXT");
  budgets->add_flag("--backward", options.backward, "Run backward too");
  add_options(*budgets, options);

  CLI::App* const training =
      app.add_subcommand("training", "Compare with MemFine's three methods, over a training run");
  TrainingRun of;
  Budget budget;
  training->add_option("loads", of.file, "Loads [steps, layers, experts]")->required()->type_name("FILE");
  cli::add_whole(*training, "--every", of.every, 1, kAnySize, "Run only every N-th step");
  cli::add_size(*training, "--budget", budget.bytes, "Default: half of the first method's peak")
      ->default_str("");
  add_options(*training, options);
  training->remove_option(training->get_option("--experts"));  // the file determines their number

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  StudySetup setup = options.setup();
  Report report;
  if (budgets->parsed()) {
    report = in_budgets(setup, scenario_names(setup, scenarios), asked,
                        [](const std::string& what) { return cli::progress_line(what + ": round"); });
  } else {
    setup.budget.bytes = budget.bytes;
    setup.backward = true;
    of.as_recorded = !cli::is_given(*training, "--tokens");
    report = over_training(setup, of, cli::progress_line("round"));
  }
  fmt::print("{}", options.json ? report.json.dump() + "\n" : report.text);
  return 0;
}

}  // namespace

}  // namespace evenkeel::study

int main(int argc, char** argv) {
  try {
    return evenkeel::study::run(argc, argv);
  } catch (const evenkeel::Error& error) {
    fmt::print(stderr, "joint_study: {}\n", error.what());
    return 3;
  }
}
