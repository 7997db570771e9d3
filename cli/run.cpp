// evenkeel run: one layer on one batch of tokens, under several planners.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "cli/backend.h"
#include "cli/budget_options.h"
#include "cli/file_options.h"
#include "cli/layer_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/io/trained_layer.h"
#include "evenkeel/report/study_report.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

namespace {

using Kind = PlannerOptions::Kind;

struct RunArguments {
  std::string scenario;
  std::string trace;
  FileArguments files;
  std::string trace_axes;  // how the trace's array was read, if it has no name
  std::string sequences;
  std::string weights;
  std::string placement;
  std::int64_t trace_layer = 0;
  LayerNumbers trace_layers;  // of the trace; a scenario has one layer
  int num_trace_layers = 1;
  std::int64_t tokens = kTokensPerRank;
  std::int64_t ranks = 8;
  BackendOptions backend;
  NodeOptions nodes;
  LayerOptions layer;
  BudgetOptions budget;
  std::vector<Kind> planners = {Kind::ep, Kind::least_loaded, Kind::level};
  PlannerOptions parameters;
  bool by_gain = true;
  std::int64_t repeat = 5;
  bool backward = false;
  std::string timeline;
  std::string html;
  bool json = false;
};

// Takes a dimension of the layer from a file. Throws InvalidArgument if an option gives another value.
void take_from_file(const CLI::App& app, const char* option, const std::string& file, std::int64_t in_file,
                    std::int64_t& value) {
  if (is_given(app, option) && value != in_file)
    throw InvalidArgument(option, fmt::format("{}, but {} has {}", value, file, in_file),
                          fmt::format("{}, or to leave it out", in_file));
  value = in_file;
}

void validate_options(const CLI::App& app) {
  if (is_given(app, "--trace") == is_given(app, "--scenario"))
    throw InvalidArgument(
        "--scenario",
        is_given(app, "--trace") ? "cannot be combined with --trace" : "is missing, and so is --trace",
        "one of --scenario NAME and --trace FILE");
  if (is_given(app, "--trace")) return;
  for (const char* option : {"--sequences", "--axes", "--columns", "--as"})
    refuse_if_given(app, option, "applies only to a trace, but --trace is not given");
  if (!is_given(app, "--placement"))
    refuse_if_given(app, "--layer", "applies only to --trace or --placement, but neither is given");
}

// "A:B" or "A:B:STEP".
TraceWindow::Sequences parse_sequences(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3)
    throw InvalidArgument("--sequences", fmt::format("'{}'", text), "A:B or A:B:STEP, such as 0:32");
  TraceWindow::Sequences sequences;
  sequences.begin = parse_whole("--sequences", parts[0], 0, kAnySize);
  sequences.end = parse_whole("--sequences", parts[1], sequences.begin, kAnySize);
  if (parts.size() == 3) sequences.step = parse_whole("--sequences", parts[2], 1, kAnySize);
  return sequences;
}

std::string layers_of(const TraceInfo& info) {
  return info.layers.known() ? to_text(info.layers) : fmt::format("0..{}", info.num_layers - 1);
}

Batch traced_batch(const CLI::App& app, RunArguments& options) {
  ReadOptions how = options.files.reading();
  how.count = ReadOptions::Count::nothing;
  if (is_given(app, "--experts")) how.num_experts = static_cast<int>(options.layer.experts);
  Recording recording = read_recording(options.trace, how);
  if (!recording.trace)
    throw ParseError(options.trace, "",
                     "has only counts of experts, but a layer runs on tokens: give a trace");
  say_notes(options.trace, recording.notes);
  options.trace_axes = recording.axes;
  TraceReader* const trace = recording.trace.get();
  const TraceInfo& info = trace->info();
  options.layer.experts = info.num_experts;
  take_from_file(app, "--top-k", options.trace, info.top_k, options.layer.top_k);
  if (!is_given(app, "--layer") && info.num_layers > 1)
    throw InvalidArgument("--layer",
                          fmt::format("is not given, and {} has {} layers", options.trace, info.num_layers),
                          layers_of(info));
  const std::int64_t number = is_given(app, "--layer") ? options.trace_layer : info.layers.number_of(0);
  const auto row = info.layers.row_of(static_cast<int>(number), info.num_layers);
  if (!row)
    throw InvalidArgument(
        "--layer",
        fmt::format("{}, but {} has {}", number, options.trace, described(info.layers, info.num_layers)),
        layers_of(info));
  options.trace_layer = number;
  options.trace_layers = info.layers;
  options.num_trace_layers = info.num_layers;
  TraceWindow window;
  window.layer = LayerId(*row);
  if (is_given(app, "--sequences")) window.sequences = parse_sequences(options.sequences);
  if (is_given(app, "--tokens")) window.tokens_per_rank = options.tokens;
  return batch_of_trace(*trace, window, static_cast<int>(options.ranks));
}

Batch scenario_batch(const RunArguments& options) {
  return batch_of_workload(options.scenario,
                           {static_cast<int>(options.ranks), options.tokens,
                            static_cast<int>(options.layer.experts), static_cast<int>(options.layer.top_k)},
                           static_cast<std::uint64_t>(options.layer.seed));
}

TrainedLayer read_trained(const CLI::App& app, RunArguments& options) {
  if (options.layer.activation != Activation::swiglu)
    throw InvalidArgument("--activation", "trained layers are swiglu", "swiglu, or to leave it out");
  TrainedLayer trained = read_trained_layer(options.weights);
  take_from_file(app, "--hidden", options.weights, trained.hidden, options.layer.hidden);
  take_from_file(app, "--intermediate", options.weights, trained.intermediate, options.layer.intermediate);
  if (is_given(app, "--trace") && options.layer.experts != trained.num_experts)
    throw InvalidArgument("--weights",
                          fmt::format("{} has {} experts, but the trace has {}", options.weights,
                                      trained.num_experts, options.layer.experts),
                          "a layer with as many experts as the trace");
  if (!is_given(app, "--trace"))
    take_from_file(app, "--experts", options.weights, trained.num_experts, options.layer.experts);
  return trained;
}

// The set-up with its candidates, still without weights and tokens.
ExperimentSetup setup_of(const CLI::App& app, const RunArguments& options) {
  const int ranks = static_cast<int>(options.ranks);
  const MoeShape shape = options.layer.shape();
  LayerPlacement placement = LayerPlacement::contiguous(shape.num_experts, ranks);
  if (is_given(app, "--placement"))
    placement = layer_of(read_placement_file(options.placement, ranks), options.placement,
                         {is_given(app, "--trace") ? options.trace : "the scenario", options.trace_layers,
                          options.num_trace_layers},
                         is_given(app, "--layer") ? std::optional(options.trace_layer) : std::nullopt,
                         shape.num_experts, ranks);
  ExperimentSetup setup{shape, placement, nullptr, options.backward, static_cast<int>(options.repeat)};
  const Budget budget = budget_of(app, options.budget, options.backward, options.by_gain);
  setup.reference = plain_ep(budget);
  for (Kind kind : options.planners) {
    setup.candidates.push_back({options.parameters, budget});
    setup.candidates.back().planner.kind = kind;
  }
  setup.timelines = !options.timeline.empty() || !options.html.empty();
  return setup;
}

// Measured by the first rank, then given to all.
SpillCosts costs_of(const CLI::App& app, const RunArguments& options, const ExperimentSetup& setup) {
  const Machine* const given = is_given(app, "--cost") ? &setup.reference.budget.memory.cost : nullptr;
  const auto measured = [&] {
    return spill_costs_of(setup.shape, static_cast<int>(options.ranks), options.backward, given);
  };
  if (setup.where.comm == nullptr) return measured();
  return gather(*setup.where.comm, setup.where.is_first() ? measured() : SpillCosts{}, "costs").front();
}

void write_timeline(RunReport& report, const std::string& file) {
  report.timeline = file;
  write_file(file, to_chrome_trace(timeline_of(report)));
}

void require_outputs(const CLI::App& app, const RunArguments& options) {
  const std::vector<std::string> others = {options.weights, options.placement, options.budget.cost_file,
                                           options.nodes.topology};
  if (is_given(app, "--timeline")) {
    require_not_read(options.timeline, "--timeline", {options.trace}, others);
    require_writable(options.timeline);
  }
  require_page(options.html, {options.trace}, others, options.timeline, "--timeline");
}

void run(const CLI::App& app, RunArguments& options, Communicator* comm) {
  validate_options(app);
  if (RankPlaces{comm}.is_first()) require_outputs(app, options);
  const ModeOfSources mode({options.trace});
  std::optional<Batch> batch;
  if (is_given(app, "--trace")) batch = traced_batch(app, options);
  std::optional<TrainedLayer> trained;
  if (is_given(app, "--weights")) trained = read_trained(app, options);
  ExperimentSetup setup = setup_of(app, options);
  setup.where = places_of(app, options.nodes, static_cast<int>(options.ranks), comm);
  for (Candidate& candidate : setup.candidates)
    if (candidate.planner.kind == Kind::level)
      candidate.planner.links =
          given_links(app, options.nodes, setup.shape, setup.reference.budget.memory.cost, options.backward);
  require_memory(setup, batch ? batch->num_tokens() : options.tokens * options.ranks);
  if (!batch) batch = scenario_batch(options);
  require_budgets(setup, batch->most_tokens());
  const auto seed = static_cast<std::uint64_t>(options.layer.seed);
  const MoeShape& shape = setup.shape;
  const LayerInputs inputs =
      trained ? trained_inputs(*trained, shape.expert.type, batch->num_tokens(), seed, options.backward)
              : seeded_inputs(shape.expert, shape.num_experts, batch->num_tokens(), seed, options.backward);
  setup.inputs = &inputs;
  if (options.by_gain) {
    const SpillCosts costs = costs_of(app, options, setup);
    for (Candidate& candidate : setup.candidates)
      if (!candidate.planner.links) candidate.planner.costs = costs;
  }
  RunReport report{setup, {}, {}, batch->name, batch->num_tokens(), {}};
  if (is_given(app, "--trace") || is_given(app, "--layer")) report.layer = options.trace_layer;
  if (is_given(app, "--placement")) report.placement = options.placement;
  if (!options.trace_axes.empty()) report.axes[options.trace] = options.trace_axes;
  report.checked = measure_and_check(setup, *batch, progress_line("run"));
  if (!setup.where.is_first()) return;
  if (!options.timeline.empty()) write_timeline(report, options.timeline);
  show_result(report, options.json, options.html);
}

}  // namespace

Subcommand add_run(CLI::App& command) {
  auto options = std::make_shared<RunArguments>();
  CLI::App* app = command.add_subcommand("run", "Run one layer under several planners, and compare");
  app->add_option("--scenario", options->scenario,
                  "balanced, concentrated:F:N[:spread], zipf:S, lognormal:SIGMA, drift, collapse, w0..w7")
      ->type_name("NAME");
  app->add_option("--trace", options->trace, "Real routing: a trace file")->type_name("FILE");
  add_axes(*app, options->files);
  add_whole(*app, "--layer", options->trace_layer, 0, max_trace_assignments_per_token,
            "Layer of the trace and of the placement")
      ->default_str("");
  app->add_option("--sequences", options->sequences,
                  "Sequences of the trace: from A to before B, every STEP-th")
      ->type_name("A:B[:STEP]");
  add_whole(*app, "--tokens", options->tokens, 0, std::int64_t{1} << 30, "Tokens of each rank");
  add_whole(*app, "--ranks", options->ranks, 1, 1024, "Ranks, each with its share of experts and tokens");
  add_backend(*app, options->backend);
  add_nodes(*app, options->nodes);
  add_layer_options(*app, options->layer);
  app->add_option("--weights", options->weights, "A trained layer: its experts and recorded inputs")
      ->type_name("FILE");
  app->add_option("--placement", options->placement, "The experts' homes (default: rank r has the r-th part)")
      ->type_name("FILE");
  add_planners(*app, options->planners, 3);
  add_planner_parameters(*app, options->parameters, &options->by_gain);
  app->add_flag("--backward", options->backward, "Compute gradients as well");
  add_budget_options(*app, options->budget);
  app->add_option("--timeline", options->timeline,
                  "Write a step of each planner for ui.perfetto.dev: phases, weight transfers, memory")
      ->type_name("FILE.json");
  add_whole(*app, "--repeat", options->repeat, 1, 1000000, "Steps of each planner that are measured");
  add_html(*app, options->html);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel run --scenario concentrated:0.95:1 --ranks 8 --tokens 512 --min-segment 64\n"
      "  evenkeel run --trace data/tiny-moe/routing_step1563.npz --layer 4 --sequences 128:160 \\\n"
      "    --weights data/tiny-moe/layer.safetensors --backward --min-segment 64\n"
      "  evenkeel run --scenario concentrated:0.95:1 --tokens 512 --min-segment 64 --backward --budget "
      "64MiB");
  return {app, [app, options] {
            on_ranks(*app, options->backend, options->ranks,
                     [&](Communicator* comm) { run(*app, *options, comm); });
          }};
}

}  // namespace evenkeel::cli
