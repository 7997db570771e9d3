// evenkeel profile: traces in, one routing profile out, and how uneven it is.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/routing_file.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/report/table.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct ProfileArguments {
  std::vector<std::string> traces;
  std::string output;
  std::string as;
  Numbering numbering;
  std::int64_t num_experts = 0;
  std::int64_t ranks = 0;
  bool without_transitions = false;
  bool json = false;
};

FileFormat format_of(const std::string& output) {
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::json})
    if (output.ends_with(fmt::format(".{}", name_of(format)))) return format;
  throw InvalidArgument("--output", fmt::format("the extension of '{}' names no format of profiles", output),
                        ".safetensors, .npz, .json");
}

struct Profiled {
  RoutingProfile profile;
  // None where a file holds counts alone.
  std::optional<std::int64_t> tokens = 0;
};

// Counts alone have no transitions, and rows are added by layer numbers.
void add(const RoutingProfile& one, const std::string& path, const std::string& first, RoutingProfile& sum) {
  if (one.num_layers() != sum.num_layers() ||
      (one.layers().known() && sum.layers().known() && one.layers() != sum.layers()))
    throw InvalidArgument(
        "TRACE",
        fmt::format("{} has {}, but {} has {}", path, described(one.layers(), one.num_layers()), first,
                    described(sum.layers(), sum.num_layers())),
        "files of the same layers");
  sum.add(one);
}

Profiled profile_all(const ProfileArguments& options) {
  const RoutingOptions::Bare told = parse_bare("--as", options.as);
  RoutingOptions how =
      numbered({.bare = told, .transitions = !options.without_transitions}, options.numbering);
  if (options.num_experts > 0) how.num_experts = static_cast<int>(options.num_experts);
  std::optional<Profiled> all;
  for (const std::string& path : options.traces) {
    RoutingFile file = open_routing(path, how);
    require_bare(file, told);
    say_notes(path, file.notes);
    RoutingProfile one = profile_of(file, how);
    if (!all)
      all = Profiled{std::move(one), 0};
    else
      add(one, path, options.traces.front(), all->profile);
    if (!file.trace) all->tokens.reset();
    if (all->tokens) *all->tokens += file.trace->info().num_tokens;
  }
  return std::move(*all);
}

std::vector<std::int64_t> rank_loads(std::span<const std::int64_t> loads, std::int64_t ranks) {
  const auto homes = LayerPlacement::contiguous(static_cast<int>(loads.size()), static_cast<int>(ranks));
  std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks), 0);
  for (ExpertId expert : indices<ExpertId>(loads.size()))
    sums[homes.owner(expert).offset()] += loads[expert.offset()];
  return sums;
}

Json json_of(const Imbalance& each) {
  return {{"max_over_mean", each.max_over_mean},
          {"mean_over_max", each.mean_over_max},
          {"relative_excess", each.relative_excess}};
}

void print_json(const ProfileArguments& options, const Profiled& profiled) {
  const RoutingProfile& profile = profiled.profile;
  Json layers = Json::array();
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    Json one = {{"layer", profile.layers().number_of(layer.value())},
                {"assignments", profile.total_load(layer)},
                {"experts", json_of(imbalance(profile.loads(layer)))}};
    if (options.ranks > 0) one["ranks"] = json_of(imbalance(rank_loads(profile.loads(layer), options.ranks)));
    layers.push_back(std::move(one));
  }
  Json json = {{"traces", options.traces},
               {"tokens", profiled.tokens ? Json(*profiled.tokens) : Json(nullptr)},
               {"num_layers", profile.num_layers()},
               {"layer_numbers", profile.layers().known() ? Json(profile.layers().numbers()) : Json(nullptr)},
               {"num_experts", profile.num_experts()},
               {"transitions", profile.has_transitions()},
               {"output", options.output.empty() ? Json(nullptr) : Json(options.output)},
               {"layers", std::move(layers)}};
  print_object(json);
}

void print_table(const ProfileArguments& options, const Profiled& profiled) {
  const RoutingProfile& profile = profiled.profile;
  put("{} layers{} of {} experts{}{}\n\n", profile.num_layers(),
      profile.layers().known() ? fmt::format(" ({})", to_text(profile.layers())) : "", profile.num_experts(),
      profiled.tokens ? fmt::format(", {} tokens", *profiled.tokens) : "",
      options.output.empty() ? "" : fmt::format("; written to {}", options.output));
  std::vector<std::string> head = {"layer", "assignments", "experts: max/mean", "mean/max", "excess"};
  if (options.ranks > 0)
    head.insert(head.end(), {fmt::format("{} ranks: max/mean", options.ranks), "mean/max", "excess"});
  Table table(head);
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    std::vector<std::string> row = {fmt::format("{}", profile.layers().number_of(layer.value())),
                                    fmt::format("{}", profile.total_load(layer))};
    const auto add = [&](const Imbalance& each) {
      for (double figure : {each.max_over_mean, each.mean_over_max, each.relative_excess})
        row.push_back(fmt::format("{:.3f}", figure));
    };
    add(imbalance(profile.loads(layer)));
    if (options.ranks > 0) add(imbalance(rank_loads(profile.loads(layer), options.ranks)));
    table.add(std::move(row));
  }
  put("{}\n  excess: (max - mean) / mean\n", table.text());
}

void run(const CLI::App& app, const ProfileArguments& options) {
  std::optional<FileFormat> format;
  if (!options.output.empty()) {
    format = format_of(options.output);
    require_writable(options.output);
  }
  require_one_numbering(app);
  const Profiled profiled = profile_all(options);
  if (format) write_profile(profiled.profile, options.output, *format);
  if (options.json)
    print_json(options, profiled);
  else
    print_table(options, profiled);
}

}  // namespace

Subcommand add_profile(CLI::App& command) {
  auto options = std::make_shared<ProfileArguments>();
  CLI::App* app = command.add_subcommand("profile", "Count a trace: loads, transitions, imbalance per layer");
  app->add_option("TRACE", options->traces, "Traces, recordings or counts of one model, added up")
      ->required()
      ->type_name("FILE");
  app->add_option("-o,--output", options->output, "The profile: .safetensors, .npz or .json")
      ->type_name("FILE");
  add_whole(*app, "--num-experts", options->num_experts, 1, max_trace_experts, "Instead of what a trace says")
      ->default_str("");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Show the imbalance of so many ranks as well")
      ->default_str("");
  app->add_option("--as", options->as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  add_numbering(*app, options->numbering);
  app->add_flag("--no-transitions", options->without_transitions, "Count loads alone");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel profile data/tiny-moe/routing_step1563.npz --ranks 8 -o profile.safetensors");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
