// evenkeel convert: any readable file to any writable format.
#include "evenkeel/io/convert.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "cli/subcommand.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

namespace {

struct Options {
  std::string in;
  std::string out;
  std::int64_t num_experts = 0;
  bool json = false;
};

void run(const Options& options) {
  ConvertOptions how;
  if (options.num_experts > 0) how.num_experts = static_cast<int>(options.num_experts);
  const Converted done = convert_file(options.in, options.out, how);
  if (!options.json) {
    fmt::print("{}: {}, {} -> {}\n", options.out, done.what, done.from, done.to);
    return;
  }
  const nlohmann::ordered_json json = {{"input", options.in},
                                       {"output", options.out},
                                       {"what", done.what},
                                       {"from", done.from},
                                       {"to", done.to}};
  fmt::print("{}\n", json.dump());
}

}  // namespace

Subcommand add_convert(CLI::App& command) {
  auto options = std::make_shared<Options>();
  CLI::App* app = command.add_subcommand("convert", "Turn any readable file into any writable format");
  app->add_option("IN", options->in, "Known by its content: a trace, profile, loads or placement")
      ->required()
      ->type_name("FILE");
  app->add_option("OUT", options->out, "Its extension says the format: .safetensors, .npz, .npy or .json")
      ->required()
      ->type_name("FILE");
  add_whole(*app, "--num-experts", options->num_experts, 1, max_trace_experts,
            "Of a trace that does not say it")
      ->default_str("");
  add_json(*app, options->json);
  app->footer("Example:\n  evenkeel convert data/tiny-moe/routing_step50.npz trace.safetensors");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
