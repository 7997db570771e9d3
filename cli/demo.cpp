// evenkeel demo: what balancing and placing gain on the shipped trace and trained layer.
#include <memory>
#include <string>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel::cli {

namespace {

struct DemoArguments {
  DemoSetup setup;
  std::int64_t ranks = 8;
  std::int64_t repeat = 21;
  std::string cost_file;
};

void run(DemoArguments& options) {
  options.setup.ranks = static_cast<int>(options.ranks);
  options.setup.rounds = static_cast<int>(options.repeat);
  if (!options.cost_file.empty()) options.setup.cost = read_cost(options.cost_file);
  print_text(to_text(measure_demo(options.setup, progress_line)));
}

}  // namespace

Subcommand add_demo(CLI::App& command) {
  auto options = std::make_shared<DemoArguments>();
  CLI::App* app =
      command.add_subcommand("demo", "What balancing and placing buy on the shipped trace and trained layer");
  app->add_option("--data", options->setup.data, "The folder of tiny-moe")
      ->type_name("DIR")
      ->default_str(options->setup.data);
  add_whole(*app, "--ranks", options->ranks, 1, 1024, "Threads, each with its share of experts and tokens");
  add_whole(*app, "--repeat", options->repeat, 1, 1000000, "Steps of each planner that are measured");
  app->add_option("--cost", options->cost_file,
                  "File of `bench --calibrate`, used where predicted seconds decide")
      ->type_name("FILE");
  app->footer("Example:\n  evenkeel demo --data data/tiny-moe");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
