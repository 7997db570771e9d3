#include "cli/numbering.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::cli {

std::optional<std::vector<int>> Numbering::layers() const {
  if (moe_layers.empty()) return std::nullopt;
  return parse_layers("--moe-layers", moe_layers);
}

std::optional<ModelLayers> Numbering::read_model() const {
  if (model.empty()) return std::nullopt;
  return read_model_layers(model);
}

void add_numbering(CLI::App& app, Numbering& numbering) {
  app.add_option("--moe-layers", numbering.moe_layers,
                 "The model's layers that have experts, counted with the dense ones, as in 3-60 or 1,3,5")
      ->type_name("LAYERS");
  app.add_option("--model", numbering.model, "Instead: the model's config.json, which says them")
      ->type_name("FILE|DIR");
}

void add_hidden_layers(CLI::App& app, Numbering& numbering) {
  add_whole(app, "--num-hidden-layers", numbering.num_hidden_layers, 1, max_layers,
            "sglang: all layers of the model (default: up to the last with experts)")
      ->default_str("");
}

void require_one_numbering(const CLI::App& app) {
  if (!is_given(app, "--model")) return;
  for (const char* option : {"--moe-layers", "--num-hidden-layers"})
    if (app.get_option_no_throw(option) != nullptr) refuse_if_given(app, option, "is what --model says");
}

RoutingOptions numbered(RoutingOptions options, const Numbering& numbering) {
  options.layers = numbering.layers();
  options.model = numbering.read_model();
  return options;
}

PlacementFormatOptions numbered(PlacementFormatOptions options, const Numbering& numbering) {
  options.layers = numbering.layers();
  options.model = numbering.read_model();
  if (numbering.num_hidden_layers > 0)
    options.num_hidden_layers = static_cast<int>(numbering.num_hidden_layers);
  return options;
}

void say_notes(const std::string& file, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) say("note: {}: {}", file, note);
}

}  // namespace evenkeel::cli
