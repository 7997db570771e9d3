// evenkeel convert: any readable file to any writable format.
#include "evenkeel/io/convert.h"

#include <memory>

#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/report/files.h"

namespace evenkeel::cli {

namespace {

struct ConvertArguments {
  std::string in;
  std::string out;
  std::string to;
  FileArguments files;
  std::optional<int> layer_updates_per_iter;
  std::optional<int> ranks;
  bool json = false;
};

void run(const CLI::App& app, const ConvertArguments& options) {
  require_one_numbering(app);
  require_not_read(options.out, "output", {options.in}, options.files.model_files());
  ConvertOptions how{.reading = options.files.reading(), .to = {}, .placement = options.files.placement()};
  how.placement.num_ranks = options.ranks;
  how.placement.layer_updates_per_iter = options.layer_updates_per_iter;
  if (!options.to.empty()) how.to = parse_placement_format(options.to, "--to");
  const Conversion conversion{options.in, options.out, convert_file(options.in, options.out, how)};
  say_notes(options.in, conversion.done.notes);
  print_result(conversion, options.json);
}

}  // namespace

Subcommand add_convert(CLI::App& command) {
  auto options = std::make_shared<ConvertArguments>();
  CLI::App* app = command.add_subcommand("convert", "Turn any readable file into any writable format");
  app->add_option("IN", options->in, "Known by its content: routing or a placement, ours or another system's")
      ->required()
      ->type_name("FILE");
  app->add_option("OUT", options->out, "Its extension says the format: .safetensors, .npz, .npy or .json")
      ->required()
      ->type_name("FILE");
  app->add_option("--to", options->to, "Format of a placement (default: ours)")
      ->type_name(alternatives(placement_format_names()));
  add_numbering(*app, options->files);
  add_hidden_layers(*app, options->files);
  add_whole(*app, "--layer-updates-per-iter", options->layer_updates_per_iter, 0, max_layers,
            "TensorRT-LLM: layers it may rearrange itself in an iteration (default: as IN says)");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Ranks of a placement whose file does not say it");
  add_whole(*app, "--num-experts", options->files.num_experts, 1, max_trace_experts,
            "Experts, where the file does not say it; overrides what a trace says");
  add_axes(*app, options->files);
  add_json(*app, options->json);
  app->footer(
      "Examples:\n"
      "  evenkeel convert data/tiny-moe/routing_step50.npz trace.safetensors\n"
      "  evenkeel convert placement.json init_expert_location.json --to sglang --moe-layers 0-7");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
