// evenkeel permute: a placement built into a checkpoint.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/placement_option.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/permute_checkpoint.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct PermuteArguments {
  std::string checkpoint;
  std::string placement;
  std::string output;
  std::int64_t ranks = 0;
  bool json = false;
};

PermutedCheckpoint permuted(const PermuteArguments& options, const Placement& placement) {
  PermutedCheckpoint done = permute_checkpoint(
      options.checkpoint, placement, options.output, {.progress = [](std::int64_t written, std::int64_t of) {
        show_line(fmt::format("permuting {} of {}", format_bytes(written), format_bytes(of)));
      }});
  wipe_line();
  return done;
}

void print_notes(const PermutedCheckpoint& done) {
  if (!done.kept_layers.empty())
    say("note: layer {} (multi-token prediction) keeps its order; the placement is not for it",
        fmt::join(done.kept_layers, ", "));
  if (!done.other_weights.empty())
    say("note: copied as they are; if they hold weights, then in the old order: {}",
        fmt::join(done.other_weights, ", "));
  if (!done.leftovers.empty())
    say("note: left by runs that were killed, unless one is at work; can be deleted: {}",
        fmt::join(done.leftovers, ", "));
}

void print_json(const PermuteArguments& options, const Placement& placement, const PermutedCheckpoint& done) {
  const Json json = {{"checkpoint", options.checkpoint},
                     {"output", options.output},
                     {"family", done.family},
                     {"layers", done.layers},
                     {"kept_layers", done.kept_layers},
                     {"num_experts", placement.num_experts()},
                     {"num_ranks", placement.num_ranks()},
                     {"files", done.num_files},
                     {"bytes", done.total_bytes},
                     {"tensors",
                      {{"permuted", done.tensors_permuted},
                       {"renamed", done.tensors_renamed},
                       {"copied", done.tensors_copied}}},
                     {"other_weights", done.other_weights},
                     {"leftovers", done.leftovers}};
  print_object(json);
}

void run(const PermuteArguments& options) {
  const Placement placement = read_placement_file(
      options.placement, options.ranks > 0 ? std::optional(static_cast<int>(options.ranks)) : std::nullopt);
  const PermutedCheckpoint done = permuted(options, placement);
  if (options.json) return print_json(options, placement, done);
  put("{}: {}, {} experts on {} ranks, {} MoE layers; {} in {} files\n", options.output, done.family,
      placement.num_experts(), placement.num_ranks(), done.layers.size(), format_bytes(done.total_bytes),
      done.num_files);
  put("tensors: {} renamed, {} with rows permuted, {} as they were; the map is in {}\n", done.tensors_renamed,
      done.tensors_permuted, done.tensors_copied, expert_map_name);
  print_notes(done);
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
  app->add_option("--placement", options->placement, "Ours or a server's; of equal sizes, without copies")
      ->required()
      ->type_name("FILE");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Of a placement whose file does not say it")
      ->default_str("");
  app->add_option("-o,--output", options->output, "A folder that is empty or not there yet")
      ->required()
      ->type_name("DIR");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel permute Mixtral-8x7B-v0.1 --placement placement.json -o Mixtral-8x7B-placed");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
