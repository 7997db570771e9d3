// evenkeel place: from a routing profile, or a trace, to a file that says where every expert lives.
#include "evenkeel/placement/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "cli/interrupt.h"
#include "cli/machine_option.h"
#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/place_report.h"
#include "cli/place_verdict.h"
#include "cli/placement_option.h"
#include "cli/progress.h"
#include "cli/routing_input.h"
#include "cli/subcommand.h"
#include "cli/time_model.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/placement/copy_choice.h"

namespace evenkeel::cli {

namespace {

// As many redundant experts as pay.
constexpr std::string_view kAuto = "auto";

struct PlaceArguments {
  std::vector<std::string> inputs;
  std::vector<std::string> judge;
  Machine machine;
  std::string from;
  std::string output;
  std::string as;
  Numbering numbering;
  TimeModel time;
  std::string redundant_experts = "0";
  std::int64_t groups = 1;
  std::int64_t max_moves = 0;
  std::int64_t num_experts = 0;
  std::int64_t layer_updates_per_iter = 0;
  double time_limit_s = 60;
  double gap = 0;
  double assignment_us = PlacementCost{}.assignment_us;
  double assignment_bytes = PlacementCost{}.assignment_bytes;
  // In the order of their words below.
  std::size_t solver = 0, sizes = 0, objective = 0, traffic = 0, pairs = 0, format = 0, across = 0;
  std::int64_t step_tokens = 0;
  bool steps = false;
  bool json = false;
};

std::optional<std::int64_t> step_tokens(const PlaceArguments& options) {
  return options.step_tokens > 0 ? std::optional(options.step_tokens) : std::nullopt;
}

PlacementFormat format_of(const PlaceArguments& options) {
  return placement_formats()[options.format];
}

PlacementFormatOptions format_options(const CLI::App& app, const PlaceArguments& options) {
  PlacementFormatOptions how;
  if (is_given(app, "--layer-updates-per-iter"))
    how.layer_updates_per_iter = static_cast<int>(options.layer_updates_per_iter);
  return numbered(std::move(how), options.numbering);
}

RoutingOptions routing_options(const CLI::App& app, const PlaceArguments& options) {
  RoutingOptions how{.bare = parse_bare("--as", options.as), .keep_steps = is_time_model_given(app)};
  if (options.num_experts > 0) how.num_experts = static_cast<int>(options.num_experts);
  return numbered(std::move(how), options.numbering);
}

// No option is ignored: what the others leave without a meaning is refused.
void validate_options(const CLI::App& app, const PlaceArguments& options) {
  const auto format = format_of(options);
  require_one_numbering(app);
  require_time_model(app, options.time, options.numbering.model, options.step_tokens);
  if (!options.steps) refuse_if_given(app, "--step-tokens", "is for --steps");
  if (options.redundant_experts == kAuto)
    refuse_if_given(app, "--from",
                    "says how many slots there are, which --redundant-experts auto would choose");
  if (!options.steps && options.inputs.size() == 1)
    refuse_if_given(app, "--across", "is for several recordings");
  if (options.steps && options.inputs.size() > 1)
    throw InvalidArgument("--steps", fmt::format("is given with {} recordings", options.inputs.size()),
                          "one recording, whose steps are all to be level");
  if (options.steps && static_cast<TrafficModel>(options.traffic) == TrafficModel::dispatch_combine)
    throw InvalidArgument("--traffic", "dispatch-combine has no meaning beside --steps", "layer-to-layer");
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
  if (options.redundant_experts != kAuto)
    how.redundant_experts = static_cast<int>(
        parse_whole("--redundant-experts", options.redundant_experts, 0, std::int64_t{1} << 24));
  how.num_groups = static_cast<int>(options.groups);
  how.sources = std::move(sources);
  how.across = static_cast<PlaceOptions::Across>(options.across);
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
                     {"input", fmt::format("{}", fmt::join(options.inputs, ", "))},
                     {"objective", main},
                     {"solver", result.solver == PlaceOptions::Solver::exact ? "exact" : "fast"},
                     {"max_over_mean", fmt::format("{:.6f}", result.after.max_over_mean_mean)}};
  if (!options.machine.topology.empty()) file.provenance["topology"] = options.machine.topology;
  return file;
}

std::int64_t num_assignments(const RoutingInputs& input) {
  std::int64_t sum = 0;
  for (const RoutingProfile& profile : input.profiles)
    sum += std::reduce(profile.loads().begin(), profile.loads().end(), std::int64_t{0});
  return sum;
}

// Of the first recording that knows them.
LayerNumbers numbers_of(const RoutingInputs& input) {
  for (const RoutingProfile& profile : input.profiles)
    if (profile.layers().known()) return profile.layers();
  return {};
}

std::vector<JudgedRecording> per_recording(const std::vector<std::string>& files, const PlaceResult& result) {
  std::vector<JudgedRecording> all;
  for (std::size_t i = 0; i < result.per_recording.size(); ++i)
    all.push_back({files[i], result.per_recording[i]});
  return all;
}

// Physical experts, as known before the solve: where their number is chosen, every rank has equally many.
int slots_before(const PlaceArguments& options, const RoutingProfile& first, const Topology& topology,
                 const PlaceOptions& how) {
  const int ranks = topology.num_ranks();
  if (options.redundant_experts == kAuto) return (first.num_experts() + ranks - 1) / ranks * ranks;
  return first.num_experts() + how.redundant_experts;
}

// Before anything is placed or written.
void require_judges_fit(const RoutingInputs& input, const RoutingInputs& judges) {
  const RoutingProfile& first = input.profiles.front();
  const Placement placed =
      Placement::contiguous(first.num_layers(), first.num_experts(), 1).numbered(numbers_of(input));
  for (std::size_t i = 0; i < judges.profiles.size(); ++i) {
    const RoutingProfile& judge = judges.profiles[i];
    if (judge.num_experts() != first.num_experts())
      throw InvalidArgument("--judge", fmt::format("{} has {} experts", judges.names[i], judge.num_experts()),
                            fmt::format("{}, as {} has", first.num_experts(), input.names.front()));
    placed.paired_with({judges.names[i], judge.layers(), judge.num_layers()}, input.names.front(), "--judge");
  }
}

// On recordings that had no part in the placement.
std::vector<JudgedRecording> judged_on(const RoutingInputs& judges, const std::vector<std::string>& files,
                                       const Topology& topology, const PlaceOptions& how,
                                       const PlaceResult& result) {
  std::vector<JudgedRecording> all;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const RoutingProfile& recording = judges.profiles[i];
    const NumberedRows rows{files[i], recording.layers(), recording.num_layers()};
    const Placement after = result.placement.paired_with(rows, "the placement", "--judge");
    const Placement before = how.from ? how.from->paired_with(rows, "the placement", "--from")
                                      : Placement::contiguous(recording.num_layers(), recording.num_experts(),
                                                              topology.num_ranks());
    all.push_back(
        {files[i],
         {placement_quality(recording, topology, before), placement_quality(recording, topology, after)}});
  }
  return all;
}

// On the data that the placement was made from and, where others are given, on those.
struct Verdicts {
  std::optional<VerdictReport> own = {};
  std::optional<VerdictReport> judged = {};
};

Verdicts verdicts_of(const PlaceArguments& options, const RoutingInputs& input, const RoutingInputs& judges,
                     const VerdictQuestion& question) {
  Verdicts verdicts{.own = verdict_on(judged_data(input, options.steps, options.inputs.front()), question)};
  if (!judges.profiles.empty()) verdicts.judged = verdict_on(judged_data(judges, false, ""), question);
  return verdicts;
}

void run(const CLI::App& app, const PlaceArguments& options) {
  validate_options(app, options);
  const Topology topology = topology_of(app, options.machine);
  const PlacementFormatOptions format = format_options(app, options);
  const InputNeeds needs{.traffic = static_cast<TrafficModel>(options.traffic),
                         .num_ranks = topology.num_ranks(),
                         .routing = routing_options(app, options)};
  RoutingInputs input = options.steps ? read_step_inputs(options.inputs.front(), needs, step_tokens(options))
                                      : read_inputs(options.inputs, needs);
  const RoutingInputs judges = read_judges(options.judge, needs);
  require_judges_fit(input, judges);
  PlaceOptions how = place_options(app, options, topology.num_ranks(), std::move(input.sources));
  const RoutingProfile& first = input.profiles.front();
  std::optional<StepModel> model;
  if (is_time_model_given(app))
    model = read_step_model(app, options.time, options.numbering.model, options.step_tokens, topology,
                            options.inputs.front(), first.num_experts());
  std::optional<CopyChoice> copies;
  if (is_given(app, "--output"))
    require_placement_writable(format_of(options),
                               {.num_layers = first.num_layers(),
                                .physical_experts = slots_before(options, first, topology, how),
                                .num_ranks = topology.num_ranks(),
                                .layers = numbers_of(input)},
                               format, options.output);

  bool interrupted = false;
  PlaceResult result = [&] {
    const Interrupt interrupt({SIGINT});
    how.limits.stop = interrupt.token();
    if (!options.json) how.limits.progress = gap_line("place");
    if (options.redundant_experts == kAuto) {
      copies = choose_copies(input.profiles, topology, how);
      how.redundant_experts = copies->redundant_experts;
    }
    PlaceResult solved = place(input.profiles, topology, how);
    interrupted = interrupt.asked();
    return solved;
  }();
  wipe_line();
  if (interrupted) result.notes.emplace_back("interrupted: this is the best so far");
  if (is_given(app, "--output"))
    write_placement_as(format_of(options), file_of(options, result), format, options.output);
  Verdicts verdicts;
  if (model)
    verdicts = verdicts_of(options, input, judges,
                           {.placement = result.placement,
                            .from = how.from,
                            .placement_name = options.output.empty() ? "the placement" : options.output,
                            .from_name = options.from.empty() ? "contiguous" : options.from,
                            .topology = topology,
                            .model = *model,
                            .horizon = options.time.steps_served()});
  const PlaceReport report{.options = how,
                           .result = result,
                           .topology = topology,
                           .num_layers = first.num_layers(),
                           .layers = result.placement.layers(),
                           .num_experts = first.num_experts(),
                           .assignments = num_assignments(input),
                           .output = options.output,
                           .per_recording = per_recording(input.names, result),
                           .judged = judged_on(judges, options.judge, topology, how, result),
                           .copies = std::move(copies),
                           .verdict = std::move(verdicts.own),
                           .judged_verdict = std::move(verdicts.judged)};
  if (options.json)
    print_json(report);
  else
    print_table(report);
}

void add_problem(CLI::App& app, PlaceArguments& options) {
  add_whole(app, "--num-experts", options.num_experts, 1, max_trace_experts, "Instead of what a trace says")
      ->default_str("");
  app.add_option("--as", options.as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  app.add_option("--redundant-experts", options.redundant_experts,
                 "Copies beyond one of each, a layer; auto: as many as pay for their memory")
      ->type_name("N|auto");
  add_whole(app, "--groups", options.groups, 1, max_experts,
            "Expert groups, each of which stays in one node");
  add_word(app, "--sizes", options.sizes, {"equal", "free"},
           "Experts of a rank and layer: as many on each, or any");
  add_word(app, "--objective", options.objective, {"two-stage", "joint"},
           "First balance then traffic, or both in milliseconds");
  add_word(app, "--traffic", options.traffic, {"layer-to-layer", "dispatch-combine"},
           "From expert to next expert, or from the token's rank and back");
  add_word(app, "--across", options.across, {"worst", "sum"},
           "Of several recordings: all level, the worst first, or what they add up to");
  app.add_flag("--steps", options.steps, "The steps of one recording are all to be level");
  add_whole(app, "--step-tokens", options.step_tokens, 1, kAnySize,
            "Beside --steps: tokens of a trace's step")
      ->default_str("");
  app.add_option("--judge", options.judge, "Also measure the placement on these, which it is not made from")
      ->type_name("FILE");
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
  add_time_model(app, options.time);
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
  app->add_option("PROFILE", options->inputs,
                  "Profiles, traces, counts, or other systems' recordings; several are all to be level")
      ->required()
      ->type_name("FILE");
  add_machine(*app, options->machine);
  add_problem(*app, *options);
  add_solving(*app, *options);
  add_output(*app, *options);
  app->footer(
      "Example:\n  evenkeel place data/tiny-moe/routing_step1563.npz --ranks 8 --nodes 2 -o placement.json");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
