// evenkeel permute: renumbers a checkpoint's experts by a placement.
#include <fmt/format.h>

#include <memory>

#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/report/files.h"

namespace evenkeel::cli {

namespace {

struct PermuteArguments {
  std::string checkpoint;
  std::string placement;
  std::string output;
  std::optional<int> ranks;
  bool json = false;
};

void run(const PermuteArguments& options) {
  const Placement placement = read_placement_file(options.placement, options.ranks);
  const auto progress = [](std::int64_t written, std::int64_t of) {
    show_line(fmt::format("permuting {} of {}", format_bytes(written), format_bytes(of)));
  };
  const Permutation permutation{
      .checkpoint = options.checkpoint,
      .output = options.output,
      .num_experts = placement.num_experts(),
      .num_ranks = placement.num_ranks(),
      .done = permute_checkpoint(options.checkpoint, placement, options.output, {.progress = progress})};
  wipe_line();
  print_result(permutation, options.json);
  if (options.json) return;  // the JSON has the notes
  for (const std::string& note : notes_of(permutation)) say("note: {}", note);
}

}  // namespace

Subcommand add_permute(CLI::App& command) {
  auto options = std::make_shared<PermuteArguments>();
  CLI::App* app = command.add_subcommand(
      "permute", "Renumber a checkpoint's experts so that contiguous EP is a placement");
  app->add_option("CHECKPOINT", options->checkpoint,
                  "A folder with config.json and safetensors, as Hugging Face has it")
      ->required()
      ->type_name("DIR");
  app->add_option("--placement", options->placement,
                  "Ours or a server's, with equally many experts on each rank and no copies")
      ->required()
      ->type_name("FILE");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Ranks of a placement whose file does not say it");
  app->add_option("-o,--output", options->output, "A folder that is empty or not there yet")
      ->required()
      ->type_name("DIR");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel permute Mixtral-8x7B-v0.1 --placement placement.json -o Mixtral-8x7B-placed");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
