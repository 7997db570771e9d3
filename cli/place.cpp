// evenkeel place: from a routing profile, or a trace, to a file that says where every expert lives.
#include "evenkeel/placement/place.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "cli/interrupt.h"
#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/place_report.h"
#include "cli/placement_option.h"
#include "cli/progress.h"
#include "cli/routing_input.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/topology/presets.h"

namespace evenkeel::cli {

namespace {

struct PlaceArguments {
  std::string input;
  std::string topology;
  std::string from;
  std::string output;
  std::string as;
  Numbering numbering;
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::int64_t redundant_experts = 0;
  std::int64_t groups = 1;
  std::int64_t max_moves = 0;
  std::int64_t num_experts = 0;
  std::int64_t layer_updates_per_iter = 0;
  double time_limit_s = 60;
  double gap = 0;
  double assignment_us = PlacementCost{}.assignment_us;
  double assignment_bytes = PlacementCost{}.assignment_bytes;
  // In the order of their words below.
  std::size_t solver = 0, sizes = 0, objective = 0, traffic = 0, pairs = 0, format = 0;
  bool json = false;
};

PlacementFormat format_of(const PlaceArguments& options) {
  return placement_formats()[options.format];
}

Topology topology_of(const CLI::App& app, const PlaceArguments& options) {
  if (!is_given(app, "--topology")) {
    if (!is_given(app, "--ranks"))
      throw InvalidArgument("--ranks", "is not given, nor is --topology", "how many ranks there are");
    if (options.ranks % options.nodes != 0)
      throw InvalidArgument(
          "--nodes", fmt::format("{} ranks are not equally many in {} nodes", options.ranks, options.nodes),
          "a divisor of --ranks, or --topology with node_of_rank");
    return Topology::uniform(static_cast<int>(options.nodes),
                             static_cast<int>(options.ranks / options.nodes));
  }
  refuse_if_given(app, "--nodes", "is what --topology says");
  Topology topology = is_topology_preset(options.topology) ? preset_topology(options.topology)
                                                           : read_topology(options.topology);
  if (is_given(app, "--ranks") && options.ranks != topology.num_ranks())
    throw InvalidArgument(
        "--ranks", fmt::format("{}, but {} has {}", options.ranks, options.topology, topology.num_ranks()),
        "to leave it out");
  return topology;
}

PlacementFormatOptions format_options(const CLI::App& app, const PlaceArguments& options) {
  PlacementFormatOptions how;
  if (is_given(app, "--layer-updates-per-iter"))
    how.layer_updates_per_iter = static_cast<int>(options.layer_updates_per_iter);
  return numbered(std::move(how), options.numbering);
}

RoutingOptions routing_options(const PlaceArguments& options) {
  RoutingOptions how{.bare = parse_bare("--as", options.as)};
  if (options.num_experts > 0) how.num_experts = static_cast<int>(options.num_experts);
  return numbered(std::move(how), options.numbering);
}

// No option is ignored: what the others leave without a meaning is refused.
void require_sense(const CLI::App& app, const PlaceArguments& options) {
  const auto format = format_of(options);
  require_one_numbering(app);
  if (format != PlacementFormat::sglang && format != PlacementFormat::trtllm)
    refuse_if_given(app, "--num-hidden-layers",
                    "is for formats that count the model's layers: sglang and trtllm");
  if (format != PlacementFormat::trtllm) refuse_if_given(app, "--layer-updates-per-iter", "is for trtllm");
  if (format != PlacementFormat::evenkeel && static_cast<ClusterSizes>(options.sizes) == ClusterSizes::free)
    throw InvalidArgument("--sizes",
                          fmt::format("free, but {} gives every rank equally many experts", name_of(format)),
                          "equal, or --format evenkeel");
  if (!is_given(app, "--output")) refuse_if_given(app, "--format", "has no meaning without --output");
  if (static_cast<PlaceOptions::Objective>(options.objective) != PlaceOptions::Objective::joint)
    for (const char* option : {"--assignment-us", "--assignment-bytes"})
      refuse_if_given(app, option, "is for --objective joint");
  if (is_given(app, "--from") != is_given(app, "--max-moves"))
    throw InvalidArgument(
        is_given(app, "--from") ? "--max-moves" : "--from",
        is_given(app, "--from") ? "is not given beside --from" : "is not given beside --max-moves",
        "both: a placement, and how many experts may get another home");
}

PlaceOptions place_options(const CLI::App& app, const PlaceArguments& options, int num_ranks,
                           SourceCounts sources) {
  PlaceOptions how;
  how.solver = static_cast<PlaceOptions::Solver>(options.solver);
  how.sizes = static_cast<ClusterSizes>(options.sizes);
  how.objective = static_cast<PlaceOptions::Objective>(options.objective);
  how.traffic = static_cast<TrafficModel>(options.traffic);
  how.pairs = static_cast<PairObjective>(options.pairs);
  how.cost = {.assignment_us = options.assignment_us, .assignment_bytes = options.assignment_bytes};
  how.redundant_experts = static_cast<int>(options.redundant_experts);
  how.num_groups = static_cast<int>(options.groups);
  how.sources = std::move(sources);
  how.limits.time_limit_s = options.time_limit_s;
  how.limits.relative_gap = options.gap;
  if (is_given(app, "--from")) {
    how.from = read_placement_file(options.from, num_ranks);
    how.max_moves = static_cast<int>(options.max_moves);
  }
  return how;
}

PlacementFile file_of(const PlaceArguments& options, const PlaceResult& result) {
  const bool two_stage = result.objective.contains("traffic");
  const std::string main = two_stage ? "traffic" : result.objective.begin()->first;
  PlacementFile file{
      .placement = result.placement, .objective = result.objective.at(main), .bound = result.bound.at(main)};
  file.provenance = {{"program", "evenkeel " EVENKEEL_VERSION},
                     {"input", options.input},
                     {"objective", main},
                     {"solver", result.solver == PlaceOptions::Solver::exact ? "exact" : "fast"},
                     {"max_over_mean", fmt::format("{:.6f}", result.after.max_over_mean_mean)}};
  if (!options.topology.empty()) file.provenance["topology"] = options.topology;
  return file;
}

void run(const CLI::App& app, const PlaceArguments& options) {
  require_sense(app, options);
  const Topology topology = topology_of(app, options);
  const PlacementFormatOptions format = format_options(app, options);
  RoutingInput input = read_input(options.input, {.traffic = static_cast<TrafficModel>(options.traffic),
                                                  .num_ranks = topology.num_ranks(),
                                                  .routing = routing_options(options)});
  say_notes(options.input, input.notes);
  PlaceOptions how = place_options(app, options, topology.num_ranks(), std::move(input.sources));
  if (is_given(app, "--output"))
    require_placement_writable(format_of(options),
                               {.num_layers = input.profile.num_layers(),
                                .physical_experts = input.profile.num_experts() + how.redundant_experts,
                                .num_ranks = topology.num_ranks(),
                                .layers = input.profile.layers()},
                               format, options.output);

  bool interrupted = false;
  PlaceResult result = [&] {
    const Interrupt interrupt({SIGINT});
    how.limits.stop = interrupt.token();
    if (!options.json) how.limits.progress = gap_line("place");
    PlaceResult solved = place(input.profile, topology, how);
    interrupted = interrupt.asked();
    return solved;
  }();
  wipe_line();
  if (interrupted) result.notes.emplace_back("interrupted: this is the best so far");
  if (is_given(app, "--output"))
    write_placement_as(format_of(options), file_of(options, result), format, options.output);
  const std::span<const std::int64_t> loads = input.profile.loads();
  const PlaceReport report{.options = how,
                           .result = result,
                           .topology = topology,
                           .num_layers = input.profile.num_layers(),
                           .layers = result.placement.layers(),
                           .num_experts = input.profile.num_experts(),
                           .assignments = std::reduce(loads.begin(), loads.end(), std::int64_t{0}),
                           .output = options.output};
  if (options.json)
    print_json(report);
  else
    print_table(report);
}

void add_machine(CLI::App& app, PlaceArguments& options) {
  add_whole(app, "--ranks", options.ranks, 1, max_ranks, "Ranks that share the experts")->default_str("");
  add_whole(app, "--nodes", options.nodes, 1, max_ranks, "Nodes that the ranks fill in order");
  app.add_option("--topology", options.topology,
                 "The machine: a file, or 8xh100, 8xh200, 2x8xh100, 2x8xh200, gb200-nvl72")
      ->type_name("FILE|NAME");
}

void add_problem(CLI::App& app, PlaceArguments& options) {
  add_whole(app, "--num-experts", options.num_experts, 1, max_trace_experts, "Instead of what a trace says")
      ->default_str("");
  app.add_option("--as", options.as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  add_whole(app, "--redundant-experts", options.redundant_experts, 0, 1 << 24,
            "Copies beyond one of each, a layer");
  add_whole(app, "--groups", options.groups, 1, max_experts,
            "Expert groups, each of which stays in one node");
  add_word(app, "--sizes", options.sizes, {"equal", "free"},
           "Experts of a rank and layer: as many on each, or any");
  add_word(app, "--objective", options.objective, {"two-stage", "joint"},
           "First balance then traffic, or both in milliseconds");
  add_word(app, "--traffic", options.traffic, {"layer-to-layer", "dispatch-combine"},
           "From expert to next expert, or from the token's rank and back");
  add_word(app, "--pairs", options.pairs, {"worst", "total"}, "The worst pair of ranks counts, or all");
  add_number(app, "--assignment-us", options.assignment_us, 0, PlacementCost::most_assignment_us,
             "joint: computing one assignment takes this");
  add_number(app, "--assignment-bytes", options.assignment_bytes, 0, PlacementCost::most_assignment_bytes,
             "joint: sent with one assignment, one way");
}

void add_solving(CLI::App& app, PlaceArguments& options) {
  add_word(app, "--solver", options.solver, {"fast", "exact"},
           "Milliseconds (joint: up to seconds), or integer programs to a proven gap");
  add_number(app, "--time-limit", options.time_limit_s, 0.001, std::numeric_limits<double>::infinity(),
             "Seconds for all stages; the best so far is kept");
  add_number(app, "--gap", options.gap, 0, 1, "Good enough: this far from the bound, as a fraction");
  app.add_option("--from", options.from, "Start at this placement, and move few experts")->type_name("FILE");
  add_whole(app, "--max-moves", options.max_moves, 1, std::numeric_limits<int>::max(),
            "Beside --from: experts that may get another home, over all layers")
      ->default_str("");
}

void add_output(CLI::App& app, PlaceArguments& options) {
  add_word(app, "--format", options.format, placement_format_names(), "Who shall load the file");
  add_numbering(app, options.numbering);
  add_hidden_layers(app, options.numbering);
  add_whole(app, "--layer-updates-per-iter", options.layer_updates_per_iter, 0, max_layers,
            "trtllm: layers that it may rearrange itself in an iteration");
  app.add_option("-o,--output", options.output, "The placement")->type_name("FILE");
  add_json(app, options.json);
}

}  // namespace

Subcommand add_place(CLI::App& command) {
  auto options = std::make_shared<PlaceArguments>();
  CLI::App* app = command.add_subcommand("place", "Choose a home for every expert from a routing profile");
  app->add_option("PROFILE", options->input, "A profile, trace, counts, or another system's recording")
      ->required()
      ->type_name("FILE");
  add_machine(*app, *options);
  add_problem(*app, *options);
  add_solving(*app, *options);
  add_output(*app, *options);
  app->footer(
      "Example:\n  evenkeel place data/tiny-moe/routing_step1563.npz --ranks 8 --nodes 2 -o placement.json");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
