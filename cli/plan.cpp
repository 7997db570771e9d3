// evenkeel plan: makes a step plan from loads, or one for each layer of a recording.
#include "evenkeel/report/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/file_options.h"
#include "cli/machine_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/subcommand.h"
#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/transfer_bound.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel::cli {

namespace {

struct PlanArguments {
  std::string loads;
  std::optional<int> ranks;
  std::optional<int> layer;
  std::string layers;
  FileArguments files;
  std::string placement;
  std::vector<PlannerOptions::Kind> planners = {PlannerOptions::Kind::least_loaded};
  PlannerOptions parameters;
  std::string topology;
  TimeModel rates;
  bool backward = false;
  std::string html;
  bool json = false;
};

// Empty without --topology. Throws InvalidArgument for options that need it.
std::optional<Topology> topology_of(const CLI::App& app, const PlanArguments& options) {
  if (is_given(app, "--topology")) return named_topology(options.topology);
  for (const char* option : {"--cost", "--device", "--expert-bytes", "--backward"})
    refuse_if_given(app, option, "needs --topology");
  return std::nullopt;
}

// The topology's links, with the costs of a step of --model at the rates of --cost or --device.
StepLinks links_of(const CLI::App& app, const PlanArguments& options, const Topology& topology,
                   const Counts& counts) {
  if (!is_given(app, "--model"))
    throw InvalidArgument("--topology", "needs --model", "--model, which says how large an expert is");
  if (is_given(app, "--cost")) refuse_if_given(app, "--device", "is already given by --cost");
  if (!is_given(app, "--cost") && !is_given(app, "--device"))
    throw InvalidArgument("--topology", "needs --cost or --device, which say how fast a rank is",
                          "one of them as well");
  if (topology.num_ranks() != counts.num_ranks())
    throw InvalidArgument("--topology", fmt::format("has {} ranks", topology.num_ranks()),
                          fmt::format("a topology of {} ranks", counts.num_ranks()));
  const Machine machine = is_given(app, "--cost")
                              ? read_cost(options.rates.cost)
                              : device_machine(device_preset(options.rates.device, "--device"));
  return step_links(topology, machine, read_model_description(options.files.model),
                    options.rates.expert_bytes, options.loads, counts.num_experts(), options.backward,
                    "--topology");
}

// If neither loads nor placement have several layers or a layer number, only --layer 0 is valid.
void require_layer_to_choose_from(const PlanArguments& options, const StepLoads& loads,
                                  const std::optional<Placement>& placement) {
  if (options.layer.value_or(0) == 0 || loads.num_layers > 1 || loads.layers.known()) return;
  if (placement && (placement->num_layers() > 1 || placement->layers().known())) return;
  throw InvalidArgument("--layer",
                        fmt::format("{}, but {} has loads of one layer", *options.layer, options.loads),
                        "0, or to leave it out");
}

StepLoads loads_of(const PlanArguments& options, const std::optional<Placement>& placement,
                   const std::optional<Topology>& topology) {
  FileArguments files = options.files;
  if (topology) files.model.clear();  // --model then only gives the size of experts
  LoadsOptions how{.num_ranks = options.ranks, .reading = files.reading()};
  if (options.layer) how.layers = {*options.layer};
  if (!options.layers.empty()) {
    how.layers_argument = "--layers";
    how.layers = parse_layers(how.layers_argument, options.layers);
  }
  if (!how.num_ranks && placement) how.num_ranks = placement->num_ranks();
  if (!how.num_ranks && topology) {
    how.num_ranks = topology->num_ranks();
    how.ranks_argument = "--topology";
  }
  StepLoads loads = read_step_loads(options.loads, how);
  require_layer_to_choose_from(options, loads, placement);
  say_notes(options.loads, loads.notes);
  return loads;
}

PlannedStep planned(Planner& planner, const PlannerOptions& options, const std::optional<StepLinks>& links,
                    const Counts& counts, const LayerPlacement& placement, double seconds) {
  PlannedStep step{.planner = std::string(planner.name()), .assignments = counts.total()};
  step.plan_us = median_plan_us(planner, counts, placement, step.plan, seconds);
  step.transfer_lower_bound =
      transfer_lower_bound(counts, placement, std::ranges::max(step.plan.rank_loads()));
  if (options.kind == PlannerOptions::Kind::ep)
    step.plain = step.plan;
  else
    Ep::keep_home(counts, placement, step.plain);
  if (links) step.on_links = predict_steps(*links, options, counts, placement, step.plan, step.plain);
  return step;
}

// True for one plan (--layer, or loads of one layer); false for a plan of each layer.
bool is_of_one_layer(const CLI::App& app, const PlanArguments& options, const StepLoads& loads) {
  if (!options.layer && loads.num_layers > 1) return false;
  refuse_if_given(app, "--layers", "needs several layers, but the loads have one");
  if (options.planners.size() > 1)
    throw InvalidArgument("--planner", fmt::format("'{}'", app.get_option("--planner")->results().front()),
                          "one planner");
  return true;
}

// The homes for each layer of the loads.
std::vector<LayerPlacement> homes_of(const PlanArguments& options, const std::optional<Placement>& file,
                                     const StepLoads& loads, bool is_one) {
  std::vector<LayerPlacement> homes;
  for (const auto& [layer, counts] : loads.of)
    homes.push_back(file ? layer_of(*file, options.placement, {options.loads, loads.layers, loads.num_layers},
                                    is_one ? options.layer : layer, counts.num_experts(), counts.num_ranks())
                         : LayerPlacement::contiguous(counts.num_experts(), counts.num_ranks()));
  return homes;
}

void run(const CLI::App& app, const PlanArguments& options) {
  require_one_numbering(app);
  std::vector<std::string> others = options.files.model_files();
  others.insert(others.end(), {options.placement, options.topology, options.rates.cost});
  require_page(options.html, {options.loads}, others);
  const ModeOfSources mode({options.loads});
  if (options.layer) refuse_if_given(app, "--layers", "is already given by --layer");
  const std::optional<Topology> topology = topology_of(app, options);
  std::optional<Placement> file;
  if (!options.placement.empty()) file = read_placement_file(options.placement, options.ranks);
  const StepLoads loads = loads_of(options, file, topology);
  const bool is_one = is_of_one_layer(app, options, loads);
  const std::vector<LayerPlacement> homes = homes_of(options, file, loads, is_one);
  std::optional<StepLinks> links;
  if (topology) links = links_of(app, options, *topology, loads.of.front().counts);
  PlannedLayers all;
  if (links) all.borrowed_bytes = step_parts(links->machine, links->expert, links->backward).borrowed_bytes;
  if (!loads.axes.empty()) all.axes[options.loads] = loads.axes;
  for (PlannerOptions::Kind kind : options.planners) {
    PlannerOptions planning = options.parameters;
    planning.kind = kind;
    if (kind == PlannerOptions::Kind::level) planning.links = links;
    const std::unique_ptr<Planner> planner = make_planner(planning);
    const double seconds = is_one ? 0.05 : 0.005;  // spent on timing the plans of a layer
    for (std::size_t i = 0; i < homes.size(); ++i) {
      const auto& [layer, counts] = loads.of[i];
      all.steps.push_back({layer, planned(*planner, planning, links, counts, homes[i], seconds)});
    }
  }
  if (!is_one) return show_result(all, options.json, options.html);
  PlannedStep step = std::move(all.steps.front().step);
  step.axes = all.axes;
  show_result(step, options.json, options.html);
}

}  // namespace

Subcommand add_plan(CLI::App& command) {
  auto options = std::make_shared<PlanArguments>();
  CLI::App* app = command.add_subcommand(
      "plan", "Make a step plan of each layer: who computes what, whose weights travel");
  app->add_option("LOADS", options->loads,
                  "What `profile` reads; or JSON {\"loads\": [by expert]}, {\"counts\": [[by rank]]}")
      ->required()
      ->type_name("FILE");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks,
            "Ranks; needed unless LOADS or --placement says it");
  add_whole(*app, "--layer", options->layer, 0, max_trace_assignments_per_token,
            "Which layer of a file with several: the model's number where the file says it");
  app->add_option("--layers", options->layers, "Instead, several layers, as in 0-3,7 (default: all)")
      ->type_name("LAYERS");
  add_num_experts(*app, options->files);
  add_axes(*app, options->files);
  add_numbering(*app, options->files);
  app->add_option("--placement", options->placement, "The experts' homes (default: rank r has the r-th part)")
      ->type_name("FILE");
  add_planners(*app, options->planners, 3);
  add_planner_parameters(*app, options->parameters);
  add_whole(*app, "--borrow-slots", options->parameters.borrow_slots, 0, kAnySize,
            "level: the most experts that a rank borrows")
      ->default_str("");
  app->add_option("--topology", options->topology,
                  "Predict the step on these links; where they differ, level plans for the least time")
      ->type_name("FILE|NAME");
  add_rank_rates(*app, options->rates);
  app->add_flag("--backward", options->backward, "With --topology: the step includes backward");
  add_html(*app, options->html);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  echo '{\"loads\": [9000, 500, 300, 200]}' > loads.json\n"
      "  evenkeel plan loads.json --ranks 2 --planner level --min-segment 64\n"
      "  evenkeel plan data/tiny-moe/routing_step1563.npz --ranks 8 --planner level,ep");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
