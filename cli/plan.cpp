// evenkeel plan: one step plan from loads.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/placement_option.h"
#include "cli/subcommand.h"
#include "evenkeel/balance/transfer_bound.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/report/table.h"
#include "evenkeel/routing/imbalance.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct PlanArguments {
  std::string loads;
  std::int64_t ranks = 0;
  std::int64_t layer = 0;
  std::int64_t num_experts = 0;
  std::string as;
  Numbering numbering;
  std::string placement;
  std::vector<PlannerOptions::Kind> planner = {PlannerOptions::Kind::least_loaded};
  PlannerOptions parameters;
  bool json = false;
  // Whether they were given.
  bool has_ranks = false, has_layer = false, has_placement = false;
};

// Where neither loads nor placement have several layers, or know their number, there is no layer but 0.
void require_layer_to_choose_from(const PlanArguments& options, const StepLoads& loads,
                                  const std::optional<Placement>& placement) {
  if (!options.has_layer || options.layer == 0 || loads.num_layers > 1 || loads.layers.known()) return;
  if (placement && (placement->num_layers() > 1 || placement->layers().known())) return;
  throw InvalidArgument("--layer",
                        fmt::format("{}, but {} has loads of one layer", options.layer, options.loads),
                        "0, or to leave it out");
}

StepLoads loads_of(const PlanArguments& options, const std::optional<Placement>& placement) {
  LoadsOptions how;
  if (options.has_ranks)
    how.num_ranks = static_cast<int>(options.ranks);
  else if (placement)
    how.num_ranks = placement->num_ranks();
  if (options.has_layer) how.layer = static_cast<int>(options.layer);
  how.routing = numbered({.bare = parse_bare("--as", options.as)}, options.numbering);
  if (options.num_experts > 0) how.routing.num_experts = static_cast<int>(options.num_experts);
  StepLoads loads = read_step_loads(options.loads, how);
  require_layer_to_choose_from(options, loads, placement);
  return loads;
}

// Median over many plans, without the first ones, which warm up: single calls take microseconds. No plan is
// begun after 50 ms, so that of slow ones the only one counts.
double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan) {
  using Clock = std::chrono::steady_clock;
  constexpr std::ptrdiff_t warm_ups = 20;
  constexpr std::ptrdiff_t most = 5000;
  std::vector<double> us;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    planner.plan(counts, placement, plan);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  } while (std::ssize(us) < most && Clock::now() - begin < std::chrono::milliseconds(50));
  const auto timed = us.begin() + std::min(warm_ups, std::ssize(us) - 1);
  const auto median = timed + (us.end() - timed) / 2;
  std::ranges::nth_element(timed, median, us.end());
  return *median;
}

Json json_of(const StepPlan& plan) {
  Json segments = Json::array();
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    Json of_expert = Json::array();
    for (const Segment& s : plan.segments(expert)) of_expert.push_back({s.rank.value(), s.begin, s.end});
    segments.push_back(std::move(of_expert));
  }
  Json transfers = Json::array();
  for (const Transfer& t : plan.transfers())
    transfers.push_back({t.expert.value(), t.from.value(), t.to.value()});
  return {{"segments", segments}, {"rank_loads", plan.rank_loads()}, {"transfers", transfers}};
}

StepPlan plain_plan(const Counts& counts, const LayerPlacement& placement) {
  PlannerOptions options;
  options.kind = PlannerOptions::Kind::ep;
  StepPlan plan;
  make_planner(options)->plan(counts, placement, plan);
  return plan;
}

void print_table(const StepPlan& before, const StepPlan& plan, const Counts& counts, std::string_view planner,
                 std::int64_t bound, double plan_us) {
  const auto copy = [](std::span<const std::int64_t> loads) {
    return std::vector<std::int64_t>(loads.begin(), loads.end());
  };
  put("worst rank {:.3f}x the mean (plain ep: {:.3f}x), with {} weight transfers (no fewer than {})\n",
      imbalance(plan.rank_loads()).max_over_mean, imbalance(before.rank_loads()).max_over_mean,
      plan.transfers().size(), bound);
  put("{}: {} experts on {} ranks, {} assignments; planned in {:.1f} us\n\n", planner, plan.num_experts(),
      plan.num_ranks(), counts.total(), plan_us);
  put("{}", load_picture(copy(before.rank_loads()), copy(plan.rank_loads()), "load under ep",
                         fmt::format("load under {}", planner)));
  if (!plan.spilled()) return;
  Table table({"expert", "from", "to", "assignments"});
  std::vector<std::int64_t> moved_to(plan.rank_loads().size(), 0);  // of the expert of the transfers at hand
  std::optional<ExpertId> at_hand;
  for (const Transfer& t : plan.transfers()) {
    if (at_hand != t.expert) {
      if (at_hand)
        for (const Segment& s : plan.segments(*at_hand)) moved_to[s.rank.offset()] = 0;
      for (const Segment& s : plan.segments(t.expert)) moved_to[s.rank.offset()] += s.size();
      at_hand = t.expert;
    }
    const std::int64_t moved = moved_to[t.to.offset()];
    table.add({fmt::format("{}", t.expert.value()), fmt::format("{}", t.from.value()),
               fmt::format("{}", t.to.value()), fmt::format("{}", moved)});
  }
  put("\n  weights that travel\n{}", table.text());
}

void run(const PlanArguments& options) {
  std::optional<Placement> file;
  if (options.has_placement)
    file = read_placement_file(
        options.placement, options.has_ranks ? std::optional(static_cast<int>(options.ranks)) : std::nullopt);
  const StepLoads loads = loads_of(options, file);
  say_notes(options.loads, loads.notes);
  const Counts& counts = loads.counts;
  const LayerPlacement placement =
      file ? layer_of(*file, options.placement, {options.loads, loads.layers, loads.num_layers},
                      options.has_layer ? std::optional(options.layer) : std::nullopt, counts.num_experts(),
                      counts.num_ranks())
           : LayerPlacement::contiguous(counts.num_experts(), counts.num_ranks());

  PlannerOptions planning = options.parameters;
  planning.kind = options.planner.front();
  const std::unique_ptr<Planner> planner = make_planner(planning);
  StepPlan plan;
  const double plan_us = median_plan_us(*planner, counts, placement, plan);
  const std::int64_t bound = transfer_lower_bound(counts, placement, std::ranges::max(plan.rank_loads()));
  if (!options.json)
    return print_table(plain_plan(counts, placement), plan, counts, planner->name(), bound, plan_us);

  const Imbalance even = imbalance(plan.rank_loads());
  Json json = {{"num_experts", plan.num_experts()},
               {"num_ranks", plan.num_ranks()},
               {"planner", planner->name()},
               {"spilled", plan.spilled()}};
  json.update(json_of(plan));
  json.update({{"max_over_mean", even.max_over_mean},
               {"mean_over_max", even.mean_over_max},
               {"relative_excess", even.relative_excess},
               {"transfer_lower_bound", bound},
               {"plan_us", plan_us}});
  print_object(json);
}

}  // namespace

Subcommand add_plan(CLI::App& command) {
  auto options = std::make_shared<PlanArguments>();
  CLI::App* app =
      command.add_subcommand("plan", "Make one step plan: who computes what, whose weights travel");
  app->add_option("LOADS", options->loads,
                  "What `profile` reads; or JSON {\"loads\": [by expert]}, {\"counts\": [[by rank]]}")
      ->required()
      ->type_name("FILE");
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Needed unless LOADS or --placement says it")
      ->default_str("");
  add_whole(*app, "--layer", options->layer, 0, max_trace_assignments_per_token,
            "Which layer of a file with several: the model's number where the file says it")
      ->default_str("");
  add_whole(*app, "--num-experts", options->num_experts, 1, max_trace_experts, "Instead of what a trace says")
      ->default_str("");
  app->add_option("--as", options->as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  add_numbering(*app, options->numbering);
  app->add_option("--placement", options->placement, "The experts' homes; without, rank r has the r-th part")
      ->type_name("FILE");
  add_planners(*app, options->planner, 1);
  add_planner_parameters(*app, options->parameters);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  echo '{\"loads\": [9000, 500, 300, 200]}' > loads.json\n"
      "  evenkeel plan loads.json --ranks 2 --planner level --min-segment 64");
  return {app, [app, options] {
            options->has_ranks = is_given(*app, "--ranks");
            options->has_layer = is_given(*app, "--layer");
            options->has_placement = is_given(*app, "--placement");
            require_one_numbering(*app);
            run(*options);
          }};
}

}  // namespace evenkeel::cli
