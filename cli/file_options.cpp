#include "cli/file_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::cli {

namespace {

// Adds the layer numbers that --moe-layers and --model give.
template <class Options>
Options with_layers(Options options, const FileArguments& arguments) {
  if (!arguments.moe_layers.empty()) options.layers = parse_layers("--moe-layers", arguments.moe_layers);
  if (!arguments.model.empty()) options.model = read_model_layers(arguments.model);
  return options;
}

}  // namespace

ReadOptions FileArguments::reading() const {
  if (!as.empty() && !axes.empty())
    throw InvalidArgument("--as", "cannot be combined with --axes", "one of the two");
  return with_layers(
      ReadOptions{
          .num_experts = num_experts, .axes = as.empty() ? axes : parse_as("--as", as), .columns = columns},
      *this);
}

PlacementFormatOptions FileArguments::placement() const {
  return with_layers(PlacementFormatOptions{.num_hidden_layers = num_hidden_layers}, *this);
}

void add_num_experts(CLI::App& app, FileArguments& arguments) {
  add_whole(app, "--num-experts", arguments.num_experts, 1, max_trace_experts,
            "Experts, instead of what a trace says");
}

void add_axes(CLI::App& app, FileArguments& arguments) {
  app.add_option("--axes", arguments.axes,
                 "Dimensions of an array without a name, as in tokens,layers,k or layers,experts")
      ->type_name("AXES");
  app.add_option("--columns", arguments.columns,
                 "Instead, the columns of a table, as in layer,k... or layer,expert,count")
      ->type_name("NAMES");
  app.add_option("--as", arguments.as, "Short for the usual order of counts, or of a trace")
      ->type_name("KIND");
}

void add_numbering(CLI::App& app, FileArguments& arguments) {
  app.add_option("--moe-layers", arguments.moe_layers,
                 "The model's layers that have experts, counted with the dense ones, as in 3-60 or 1,3,5")
      ->type_name("LAYERS");
  app.add_option("--model", arguments.model,
                 "The model's config.json, which lists these layers; with --moe-layers, it lists the others")
      ->type_name("FILE|DIR");
}

void add_hidden_layers(CLI::App& app, FileArguments& arguments) {
  add_whole(app, "--num-hidden-layers", arguments.num_hidden_layers, 1, max_layers,
            "sglang: all layers of the model (default: up to the last with experts)");
}

void require_one_numbering(const CLI::App& app) {
  if (is_given(app, "--model") && app.get_option_no_throw("--num-hidden-layers") != nullptr)
    refuse_if_given(app, "--num-hidden-layers", "is already given by --model");
}

void say_notes(const std::string& file, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) say("note: {}: {}", file, note);
}

void say_notes(std::span<const Recording> recordings) {
  for (const Recording& each : recordings) say_notes(each.name, each.notes);
}

void add_axes_of(std::span<const Recording> recordings, std::map<std::string, std::string>& axes) {
  for (const Recording& each : recordings)
    if (!each.axes.empty()) axes[each.name] = each.axes;
}

void require_not_read(const std::string& output, const std::string& argument,
                      const std::vector<std::string>& recordings, const std::vector<std::string>& others) {
  namespace fs = std::filesystem;
  std::error_code not_there;
  const auto is_output = [&](const fs::path& file) { return fs::equivalent(output, file, not_there); };
  const auto is_in = [&](const fs::path& folder) {
    return std::ranges::any_of(fs::directory_iterator(folder, not_there), is_output);
  };
  if (std::ranges::any_of(recordings, is_output) || std::ranges::any_of(recordings, is_in) ||
      std::ranges::any_of(others, is_output))
    throw InvalidArgument(argument, fmt::format("{} is a file that is read", output), "another file");
}

Placement read_placement_file(const std::string& path, std::optional<int> num_ranks) {
  return read_placement_as(path, {.num_ranks = num_ranks}).placement;
}

void add_dispatch(CLI::App& app, std::string& dispatch) {
  app.add_option("--dispatch", dispatch,
                 "The server's rule for copies (default: by the format; sglang: static, others: even)")
      ->type_name("even|static|nearest");
}

LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks) {
  if (placement.num_experts() != num_experts || placement.num_ranks() != num_ranks)
    throw InvalidArgument(
        "--placement",
        fmt::format("is for {} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("one for {} experts on {} ranks", num_experts, num_ranks));
  const auto number = layer ? std::optional(static_cast<int>(*layer)) : std::nullopt;
  return placement.layer(placement.row_for(loads, number, path));
}

}  // namespace evenkeel::cli
