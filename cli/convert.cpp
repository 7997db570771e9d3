// evenkeel convert: any readable file to any writable format.
#include "evenkeel/io/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/placement_option.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

namespace {

struct ConvertArguments {
  std::string in;
  std::string out;
  std::string to;
  std::string as;
  Numbering numbering;
  std::int64_t layer_updates_per_iter = 0;
  std::int64_t ranks = 0;
  std::int64_t num_experts = 0;
  bool json = false;
};

std::optional<int> given(std::int64_t number) {
  if (number == 0) return std::nullopt;
  return static_cast<int>(number);
}

ConvertOptions convert_options(const CLI::App& app, const ConvertArguments& options) {
  ConvertOptions how{.num_experts = given(options.num_experts),
                     .bare = parse_bare("--as", options.as),
                     .to = {},
                     .placement = numbered({.num_ranks = given(options.ranks)}, options.numbering)};
  if (is_given(app, "--layer-updates-per-iter"))
    how.placement.layer_updates_per_iter = static_cast<int>(options.layer_updates_per_iter);
  if (!options.to.empty()) how.to = parse_placement_format(options.to, "--to");
  return how;
}

void run(const CLI::App& app, const ConvertArguments& options) {
  require_one_numbering(app);
  const Converted done = convert_file(options.in, options.out, convert_options(app, options));
  say_notes(options.in, done.notes);
  if (!options.json) {
    put("{}: {}, {} -> {}\n", options.out, done.what, done.from, done.to);
    if (done.layers.known())
      put("  {} MoE layers of the model: {}\n", done.layers.numbers().size(), to_text(done.layers));
    return;
  }
  nlohmann::ordered_json json = {{"input", options.in},
                                 {"output", options.out},
                                 {"what", done.what},
                                 {"from", done.from},
                                 {"to", done.to}};
  if (done.layers.known()) json["layers"] = done.layers.numbers();
  print_object(json);
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
  app->add_option("--to", options->to, "A placement's format, ours where nothing is said")
      ->type_name(fmt::format("{}", fmt::join(placement_format_names(), "|")));
  add_numbering(*app, options->numbering);
  add_hidden_layers(*app, options->numbering);
  add_whole(*app, "--layer-updates-per-iter", options->layer_updates_per_iter, 0, max_layers,
            "TensorRT-LLM: layers it may rearrange itself in an iteration (default: as IN says)")
      ->default_str("");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Of a placement, whose file may not say it")
      ->default_str("");
  add_whole(*app, "--num-experts", options->num_experts, 1, max_trace_experts,
            "Where the file does not say it, and of a trace instead")
      ->default_str("");
  app->add_option("--as", options->as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  add_json(*app, options->json);
  app->footer(
      "Examples:\n"
      "  evenkeel convert data/tiny-moe/routing_step50.npz trace.safetensors\n"
      "  evenkeel convert placement.json init_expert_location.json --to sglang --moe-layers 3-60");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
