// evenkeel place: makes a placement file, with a home for every expert, from a routing profile or trace.
#include "evenkeel/report/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "cli/file_options.h"
#include "cli/interrupt.h"
#include "cli/machine_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/io/unplaced_layers.h"
#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/evaluate/provenance.h"
#include "evenkeel/placement/traffic.h"
#include "evenkeel/placement/whole_groups.h"

namespace evenkeel::cli {

namespace {

// --redundant-experts auto: as many copies as pay for their memory.
constexpr std::string_view kAuto = "auto";

struct PlaceArguments {
  std::vector<std::string> inputs;
  std::vector<std::string> judge;
  MachineOptions machine;
  std::string from;
  std::string output;
  FileArguments files;
  TimeModel time;
  PlaceOptions how;
  std::string redundant_experts = "0";
  std::int64_t groups = 1;
  std::optional<int> max_moves;
  std::optional<int> layer_updates_per_iter;
  PlacementFormat format = PlacementFormat::evenkeel;
  std::string dispatch;
  std::optional<std::int64_t> step_tokens;
  bool steps = false;
  std::string html;
  bool json = false;
};

// The profiles that the placement shall level, and the recordings it is judged on.
struct PlaceInputs {
  std::vector<std::string> names;     // of the files, or of the steps of one
  std::vector<RoutingProfile> files;  // their profiles; empty with --steps
  std::vector<Recording> recordings;  // what the placement is judged on, by loads alone
  SourceCounts sources;               // summed over all files; only if all are traces

  std::span<const RoutingProfile> profiles() const {
    return files.empty() ? recordings.front().steps : files;
  }
  const RoutingProfile& first() const { return profiles().front(); }
  // From the first profile that has layer numbers.
  LayerNumbers layers() const {
    const auto known = std::ranges::find_if(
        profiles(), [](const RoutingProfile& profile) { return profile.layers().known(); });
    return known == profiles().end() ? LayerNumbers() : known->layers();
  }
  std::int64_t num_assignments() const {
    std::int64_t sum = 0;
    for (const RoutingProfile& profile : profiles())
      sum += std::reduce(profile.loads().begin(), profile.loads().end(), std::int64_t{0});
    return sum;
  }
};

SourceCounts sum_of(std::vector<SourceCounts> all) {
  for (std::size_t i = 1; i < all.size(); ++i)
    std::ranges::transform(all[0].counts, all[i].counts, all[0].counts.begin(), std::plus());
  return std::move(all.front());
}

// Checks that a recording of --judge fits the inputs. Called before anything is placed or written.
void require_fits(const Recording& judge, const PlaceInputs& placed) {
  const RoutingProfile& first = placed.first();
  if (judge.profile.num_experts() != first.num_experts())
    throw InvalidArgument("--judge",
                          fmt::format("{} has {} experts", judge.name, judge.profile.num_experts()),
                          fmt::format("{}, as {} has", first.num_experts(), placed.names.front()));
  paired_rows(judge.rows(), {placed.names.front(), placed.layers(), first.num_layers()}, "--judge");
}

// If transitions are not counted and all files are traces, counts the source ranks of tokens instead.
PlaceInputs read_files(const std::vector<std::string>& paths, const ReadOptions& options, int num_ranks) {
  PlaceInputs all{
      .names = paths, .files = {}, .recordings = read_recordings(paths, options, "PROFILE"), .sources = {}};
  say_notes(all.recordings);
  if (options.count == ReadOptions::Count::loads &&
      std::ranges::all_of(all.recordings, &Recording::is_trace)) {
    std::vector<SourceCounts> sources;
    for (const Recording& each : all.recordings) sources.push_back(source_counts(*each.trace, num_ranks));
    all.sources = sum_of(std::move(sources));
  }
  for (Recording& each : all.recordings)
    each.profile =
        all.files.emplace_back(std::exchange(each.profile, RoutingProfile())).without_transitions();
  return all;
}

PlaceInputs read_steps(const std::string& path, const ReadOptions& options) {
  PlaceInputs all;
  all.recordings.push_back(read_recording_of_steps(path, options));
  say_notes(all.recordings);
  for (std::size_t step = 0; step < all.profiles().size(); ++step)
    all.names.push_back(fmt::format("{}: step {}", path, step));
  return all;
}

std::vector<Recording> read_judges(const std::vector<std::string>& paths, ReadOptions options,
                                   const PlaceInputs& placed) {
  options.count = ReadOptions::Count::transitions;  // judging does not use source ranks
  std::vector<Recording> judges;
  for (const std::string& path : paths) {
    judges.push_back(read_recording_of_some_layers(path, options));
    say_notes(path, judges.back().notes);
  }
  for (const Recording& judge : judges) require_fits(judge, placed);
  return judges;
}

// Refuses options that the format cannot hold or does not use.
void validate_format(const CLI::App& app, const PlaceArguments& options) {
  const PlacementFormat format = options.format;
  if (format != PlacementFormat::sglang && format != PlacementFormat::trtllm)
    refuse_if_given(app, "--num-hidden-layers", "applies only to --format sglang and trtllm");
  if (format != PlacementFormat::trtllm)
    refuse_if_given(app, "--layer-updates-per-iter", "applies only to --format trtllm");
  if (format != PlacementFormat::evenkeel && options.how.sizes == ClusterSizes::free)
    throw InvalidArgument("--sizes",
                          fmt::format("free, but {} gives every rank equally many experts", name_of(format)),
                          "equal, or --format evenkeel");
  if (options.output.empty()) refuse_if_given(app, "--format", "has no meaning without --output");
  for (const auto& recordings : {options.inputs, options.judge})
    require_not_read(options.output, "--output", recordings, options.files.model_files());
  require_not_read(options.output, "--output", {}, {options.machine.topology, options.time.cost});
}

void validate_page(const PlaceArguments& options) {
  std::vector<std::string> read = options.inputs, others = options.files.model_files();
  read.insert(read.end(), options.judge.begin(), options.judge.end());
  others.insert(others.end(), {options.from, options.machine.topology, options.time.cost});
  require_page(options.html, read, others, options.output);
}

// No option is ignored: an option that has no meaning beside the others is refused.
void validate_options(const CLI::App& app, const PlaceArguments& options) {
  require_one_numbering(app);
  require_time_model(app, options.time, options.files.model, options.step_tokens);
  if (!options.steps) refuse_if_given(app, "--step-tokens", "applies only to --steps");
  if (!options.steps && options.inputs.size() == 1)
    refuse_if_given(app, "--across", "applies only to several recordings");
  if (options.steps && options.inputs.size() > 1)
    throw InvalidArgument("--steps", fmt::format("is given with {} recordings", options.inputs.size()),
                          "one recording, each step of which is levelled");
  if (options.steps && options.how.traffic == TrafficModel::dispatch_combine)
    throw InvalidArgument("--traffic", "dispatch-combine cannot be combined with --steps", "layer-to-layer");
  validate_format(app, options);
  if (options.how.objective != PlaceOptions::Objective::joint)
    for (const char* option : {"--assignment-us", "--assignment-bytes"})
      refuse_if_given(app, option, "applies only to --objective joint");
  if (options.from.empty() == options.max_moves.has_value())
    throw InvalidArgument(
        options.from.empty() ? "--from" : "--max-moves",
        options.from.empty() ? "is missing, but --max-moves is given" : "is missing, but --from is given",
        "both: a placement, and how many experts may move; or neither");
}

PlaceOptions place_options(const PlaceArguments& options, int num_ranks, SourceCounts sources) {
  PlaceOptions how = options.how;
  if (options.redundant_experts != kAuto)
    how.redundant_experts = static_cast<int>(
        parse_whole("--redundant-experts", options.redundant_experts, 0, std::int64_t{1} << 24));
  how.num_groups = static_cast<int>(options.groups);
  how.dispatch = dispatch_for(options.format, options.dispatch, "--dispatch");
  how.sources = std::move(sources);
  if (!options.from.empty()) how.from = read_placement_file(options.from, num_ranks);
  how.max_moves = options.max_moves.value_or(0);
  return how;
}

// Keeps the model's expert groups whole, so that `permute` can build the placement into the checkpoint. Does
// nothing with --groups, with automatic redundancy, or for a server's format. Returns a note for the user, or
// an empty string.
std::string keep_groups_of_model(const CLI::App& app, const PlaceArguments& options, int num_experts,
                                 int num_ranks, PlaceOptions& how) {
  if (options.files.model.empty() || options.format != PlacementFormat::evenkeel ||
      options.redundant_experts == kAuto || is_given(app, "--groups"))
    return "";
  return keep_groups_whole(read_model_groups(options.files.model, num_experts), num_experts, num_ranks, how);
}

PlacementFile file_of(const PlaceArguments& options, const PlaceResult& result, const Placement& placement,
                      std::map<std::string, std::string> provenance) {
  const bool two_stage = result.objective.contains("traffic");
  const std::string main = two_stage ? "traffic" : result.objective.begin()->first;
  PlacementFile file{
      .placement = placement, .objective = result.objective.at(main), .bound = result.bound.at(main)};
  provenance.insert({{"program", "evenkeel " EVENKEEL_VERSION},
                     {"input", fmt::format("{}", fmt::join(options.inputs, ", "))},
                     {"objective", main},
                     {"solver", result.solver == PlaceOptions::Solver::exact ? "exact" : "fast"},
                     {"max_over_mean", fmt::format("{:.6f}", result.after.max_over_mean_mean)}});
  file.provenance = std::move(provenance);
  if (!options.machine.topology.empty()) file.provenance["topology"] = options.machine.topology;
  if (const Dispatch rule = dispatch_for(options.format, options.dispatch); rule != Dispatch::even)
    file.provenance["dispatch"] = name_of(rule);
  return file;
}

// The files that the placement is made from.
std::vector<std::string> sources_of(const PlaceArguments& options) {
  std::vector<std::string> sources = options.inputs;
  if (!options.from.empty()) sources.push_back(options.from);
  return sources;
}

// The shape as known before the solve. With automatic redundancy it has the fewest copies that give every
// rank equally many experts.
PlacementShape shape_before(const PlaceArguments& options, const PlaceInputs& input, int num_ranks,
                            const PlaceOptions& how) {
  const RoutingProfile& first = input.first();
  const int experts = first.num_experts();
  return {.num_layers = first.num_layers(),
          .physical_experts = options.redundant_experts == kAuto
                                  ? (experts + num_ranks - 1) / num_ranks * num_ranks
                                  : experts + how.redundant_experts,
          .num_ranks = num_ranks,
          .layers = input.layers()};
}

// Runs until done, or until SIGINT asks for the best so far.
PlaceResult solve(const PlaceArguments& options, const PlaceInputs& input, const Topology& topology,
                  PlaceOptions& how, std::optional<CopyChoice>& copies, std::optional<HeldOut>& held_out) {
  const Interrupt interrupt({SIGINT});
  how.limits.stop = interrupt.token();
  if (!options.json) how.limits.progress = gap_line("place");
  if (options.redundant_experts == kAuto) {
    copies = choose_copies(input.profiles(), topology, how);
    how.redundant_experts = copies->redundant_experts;
  }
  PlaceResult result = copies ? copies->placed : place(input.profiles(), topology, how);
  wipe_line();
  if (!interrupt.stop_requested())
    held_out = hold_out(input.recordings, options.steps ? PlacedFor::steps : PlacedFor::recordings, topology,
                        how, result.solve_ms);
  if (held_out) result.notes.insert(result.notes.end(), held_out->notes.begin(), held_out->notes.end());
  if (interrupt.stop_requested()) result.notes.emplace_back("interrupted: this is the best so far");
  return result;
}

JudgedPlacing judge(const PlaceArguments& options, const PlacedRecordings& recordings,
                    const std::optional<StepModel>& model, const Placing& placing) {
  const NamedPlacement before{.name = options.from.empty() ? "contiguous" : options.from,
                              .placement = placing.options.from,
                              .argument = "--from",
                              .dispatch = placing.options.dispatch};
  const NamedPlacement after{.name = options.output.empty() ? "the placement" : options.output,
                             .placement = placing.result.placement,
                             .argument = "--judge",
                             .dispatch = placing.options.dispatch};
  return judge_placed(before, after, recordings, placing.topology, model, options.time.horizon);
}

// Fills placing.served: for each dispatch rule, max/mean of the worst recording. Which rule SGLang follows
// depends on how it was started.
void say_served(const PlaceInputs& input, const Placement& all, Placing& placing) {
  for (const Dispatch dispatch : dispatches) {
    const NamedPlacement placed{.placement = all, .dispatch = dispatch};
    double& worst = placing.served[std::string(name_of(dispatch))];
    for (const Recording& each : input.recordings) {
      const ServedPlacement served = placed.served_on(each, placing.topology);
      worst = std::max(worst, judge(each.profile, {}, placing.topology, served).quality.max_over_mean_mean);
    }
  }
}

void run(const CLI::App& app, const PlaceArguments& options) {
  validate_options(app, options);
  validate_page(options);
  const ModeOfSources mode(sources_of(options));
  const Topology topology = topology_of(app, options.machine);
  const int ranks = topology.num_ranks();
  PlacementFormatOptions format = options.files.placement();
  // The file has all layers of the model, even those that the recording lacks.
  if (format.model) format.layers.reset();
  format.layer_updates_per_iter = options.layer_updates_per_iter;
  ReadOptions reading = options.files.reading();
  reading.steps = ReadOptions::Steps::if_consistent;
  reading.step_tokens = options.step_tokens;
  if (options.how.traffic == TrafficModel::dispatch_combine) reading.count = ReadOptions::Count::loads;
  PlaceInputs input = options.steps ? read_steps(options.inputs.front(), reading)
                                    : read_files(options.inputs, reading, ranks);
  const std::vector<Recording> judges = read_judges(options.judge, reading, input);
  PlaceOptions how = place_options(options, ranks, std::move(input.sources));
  const std::string of_groups = keep_groups_of_model(app, options, input.first().num_experts(), ranks, how);
  std::optional<StepModel> model;
  if (is_time_model_given(app))
    model = read_step_model(app, options.time, options.files.model, options.step_tokens, topology,
                            options.inputs.front(), input.first().num_experts());
  if (!options.output.empty())
    require_placement_writable(options.format, shape_before(options, input, ranks, how), format,
                               options.output);
  std::optional<CopyChoice> copies;
  std::optional<HeldOut> held_out;
  PlaceResult result = solve(options, input, topology, how, copies, held_out);
  const PlacedRecordings recordings{input.recordings, judges, held_out};
  if (!of_groups.empty()) result.notes.insert(result.notes.begin(), of_groups);
  if (options.format != PlacementFormat::evenkeel && !result.missing_copies.empty())
    throw Unsupported(fmt::format("{} needs equally many copies in every layer: {}", name_of(options.format),
                                  result.missing_copies));
  if (options.format == PlacementFormat::vllm_ascend && how.redundant_experts > 0)
    result.notes.emplace_back(
        "vLLM-Ascend's devices draw copies anew at each start: max/mean is what they serve on average");
  const Placement all =
      of_all_layers(result.placement, input.profiles(), how.from, format.model, result.notes);
  if (!options.output.empty())
    std::ranges::move(
        write_placement_as(options.format,
                           file_of(options, result, all, provenance_of(input.recordings, held_out)), format,
                           options.output),
        std::back_inserter(result.notes));
  if (const std::string note = note_of_one_recording(input.recordings.size(), judges.size()); !note.empty())
    result.notes.push_back(note);
  Placing placing{.options = how,
                  .result = result,
                  .topology = topology,
                  .assignments = input.num_assignments(),
                  .output = options.output,
                  .copies = std::move(copies),
                  .held_out = held_out};
  add_axes_of(input.recordings, placing.axes);
  add_axes_of(judges, placing.axes);
  for (std::size_t i = 0; i < result.per_recording.size(); ++i)
    placing.per_recording.push_back({input.names[i], result.per_recording[i]});
  if (options.format == PlacementFormat::sglang && how.redundant_experts > 0) say_served(input, all, placing);
  placing.judged = judge(options, recordings, model, placing);
  show_result(placing, options.json, options.html, recordings);
}

void add_problem(CLI::App& app, PlaceArguments& options) {
  add_num_experts(app, options.files);
  add_axes(app, options.files);
  app.add_option("--redundant-experts", options.redundant_experts,
                 "Copies per layer, beyond one of each expert; auto: as many as pay for their memory")
      ->type_name("N|auto");
  add_whole(app, "--groups", options.groups, 1, max_experts,
            "Expert groups, each of which stays in one node");
  add_word(app, "--sizes", options.how.sizes, {"equal", "free"},
           "Experts of a layer on each rank: equally many, or any number");
  add_word(app, "--objective", options.how.objective, {"two-stage", "joint"},
           "Minimise first imbalance, then traffic; or the sum of both in milliseconds");
  add_word(app, "--traffic", options.how.traffic, {"layer-to-layer", "dispatch-combine"},
           "Count traffic from expert to next expert, or from the token's rank and back");
  add_word(app, "--across", options.how.across, {"worst", "sum"},
           "Several recordings: level each one, the worst first, or level their sum");
  app.add_flag("--steps", options.steps, "Level every step of one recording");
  add_whole(app, "--step-tokens", options.step_tokens, 1, kAnySize,
            "With --steps: tokens per step of a trace");
  app.add_option("--judge", options.judge,
                 "Also judge the placement on these recordings, which it is not made from")
      ->type_name("FILE");
  add_word(app, "--pairs", options.how.pairs, {"worst", "total"},
           "Count the traffic of the worst pair of ranks, or of all");
  add_number(app, "--assignment-us", options.how.cost.assignment_us, 0, PlacementCost::most_assignment_us,
             "joint: microseconds to compute one assignment");
  add_number(app, "--assignment-bytes", options.how.cost.assignment_bytes, 0,
             PlacementCost::most_assignment_bytes, "joint: bytes sent with one assignment, one way");
}

void add_solving(CLI::App& app, PlaceArguments& options) {
  add_word(app, "--solver", options.how.solver, {"fast", "exact"},
           "Milliseconds (joint: up to seconds), or integer programs to a proven gap");
  add_number(app, "--time-limit", options.how.limits.time_limit_s, 0.001,
             std::numeric_limits<double>::infinity(), "Seconds for all stages; the best so far is kept");
  add_number(app, "--gap", options.how.limits.relative_gap, 0, 1,
             "Stop at this distance from the bound, as a fraction");
  app.add_option("--from", options.from, "Start at this placement, and move few experts")->type_name("FILE");
  add_whole(app, "--max-moves", options.max_moves, 0, std::numeric_limits<int>::max(),
            "With --from: experts that may get another home, over all layers");
}

void add_output(CLI::App& app, PlaceArguments& options) {
  add_time_model(app, options.time);
  add_word(app, "--format", options.format, placement_format_names(), "The program that will load the file");
  add_dispatch(app, options.dispatch);
  add_numbering(app, options.files);
  add_hidden_layers(app, options.files);
  add_whole(app, "--layer-updates-per-iter", options.layer_updates_per_iter, 0, max_layers,
            "trtllm: layers that it may rearrange itself in an iteration")
      ->default_str("0");
  app.add_option("-o,--output", options.output, "The placement")->type_name("FILE");
  add_html(app, options.html);
  add_json(app, options.json);
}

}  // namespace

Subcommand add_place(CLI::App& command) {
  auto options = std::make_shared<PlaceArguments>();
  CLI::App* app = command.add_subcommand("place", "Choose a home for every expert from a routing profile");
  app->add_option("PROFILE", options->inputs,
                  "Profiles, traces, counts, or other systems' recordings; of several, each is levelled")
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
