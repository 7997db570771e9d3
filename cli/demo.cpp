// evenkeel demo: what balancing and placing buy on the shipped trace and trained layer, for mixed text and
// for one domain, and the same steps in half the memory.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include "cli/batch.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "cli/spill_decision.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

constexpr int kLayer = 4;  // the one whose weights are shipped
// The batches are small, and so are the pieces worth moving.
constexpr std::int64_t kMinSegment = 64;

// The figures under a budget need fewer rounds.
constexpr int kBudgetRounds = 7;

struct DemoArguments {
  std::string data = "data/tiny-moe";
  std::int64_t ranks = 8;
  std::int64_t repeat = 21;
  std::string cost_file;
};

// 16 sequences of 256 tokens each. The trace has 32 of python, cpp, prose, data and asm, in this order.
struct Selection {
  const char* name;
  TraceWindow::Sequences sequences;
};
constexpr Selection kSelections[] = {{"mixed text", {0, 160, 10}}, {"asm alone", {128, 160, 2}}};

using Kind = PlannerOptions::Kind;

ExperimentSetup setup_of(const DemoArguments& options, const MoeShape& shape) {
  return {shape,
          LayerPlacement::contiguous(shape.num_experts, static_cast<int>(options.ranks)),
          nullptr,
          nullptr,
          nullptr,
          true,
          static_cast<int>(options.repeat)};
}

// Moves work where that is predicted to pay: mixed text is too even for it.
std::vector<PlannerOptions> planners_of(std::initializer_list<Kind> kinds, const SpillCosts& costs) {
  std::vector<PlannerOptions> planners;
  for (Kind kind : kinds) {
    planners.emplace_back();
    planners.back().kind = kind;
    planners.back().min_segment = kMinSegment;
    planners.back().imbalance_threshold_thousandths = 0;
    planners.back().costs = costs;
  }
  return planners;
}

RoutingProfile profile_of(TraceReader& trace, const TraceWindow::Sequences& sequences) {
  const TraceInfo& info = trace.info();
  RoutingProfile profile(info.num_layers, info.num_experts);
  for (std::int64_t s = sequences.begin; s < sequences.end; s += sequences.step) {
    const auto at = static_cast<std::size_t>(s);
    const TokenRange range = {info.sequence_offsets[at], info.sequence_offsets[at + 1]};
    for (TraceBatches batches(trace, range); batches.next();) profile.add_tokens(batches.ids(), info.top_k);
  }
  return profile;
}

// Homes from other sequences of the same text: those of odd number, while even ones run.
struct Placed {
  Placement placement;
  PlacementQuality before;  // of contiguous homes, on what runs
  PlacementQuality after;
};

Placed place_by_others(TraceReader& trace, const TraceWindow::Sequences& run, int num_ranks) {
  const Topology topology = Topology::uniform(1, num_ranks);
  const RoutingProfile others = profile_of(trace, {run.begin + 1, run.end, 2});
  const RoutingProfile own = profile_of(trace, run);
  const SourceCounts none;
  const PlacementProblem judged{.profile = own, .topology = topology, .sources = none};
  Placement placement = place(others, topology).placement;
  const Placement contiguous = Placement::contiguous(own.num_layers(), own.num_experts(), num_ranks);
  return {placement, placement_quality(judged, contiguous), placement_quality(judged, placement)};
}

void print_placements(const std::vector<Comparison>& contiguous, const std::vector<Comparison>& placed,
                      const std::vector<Placed>& homes) {
  Table table({"", "max/mean load", "all layers", "critical path", "transfers", "dispatched"});
  for (std::size_t i = 0; i < contiguous.size(); ++i) {
    const auto add = [&](const char* what, const CandidateFigures& of, const std::string& all_layers) {
      table.add({fmt::format("{}, {}", contiguous[i].name, what),
                 fmt::format("{:.3f}", of.balance.max_over_mean), all_layers,
                 fmt::format("{:.1f} ms", of.critical_ms), fmt::format("{}", of.transfers),
                 format_bytes(of.dispatch_bytes)});
    };
    add("contiguous", contiguous[i].checked.figures.reference,
        fmt::format("{:.3f}", homes[i].before.max_over_mean_mean));
    add("placed", placed[i].checked.figures.reference,
        fmt::format("{:.3f}", homes[i].after.max_over_mean_mean));
    add("contiguous + level", contiguous[i].checked.figures.candidates.back(), "");
    add("placed + level", placed[i].checked.figures.candidates.back(), "");
  }
  put("\n  homes chosen from other sequences of the same text (place, two-stage, fast)\n{}", table.text());
  put("  all layers: max/mean load of the same tokens, mean of all layers\n");
}

// Half of what plain ep took at its worst, in which ep in one chunk could not run.
Budget half_of_plain(const Figures& free, const CostModel& cost) {
  Budget half{std::max(free.reference.worst_peak_bytes() / 2, free.reference.least_budget), {}};
  half.memory.cost = cost;
  return half;
}

void print_budgeted(const Comparison& free, const Comparison& budgeted, const Budget& budget) {
  const Figures& figures = free.checked.figures;
  Table table({"", "worst rank's peak", "chunks", "recomputed", "critical path", "bits equal"});
  const auto add = [&](const std::string& what, const CandidateFigures& of, const Accuracy& accuracy) {
    table.add({what, format_bytes(of.worst_peak_bytes()), fmt::format("{}", of.chunks),
               fmt::format("{:.0f} %", 100 * of.recomputed_fraction),
               fmt::format("{:.1f} ms", of.critical_ms), yes_or_no(accuracy.bitwise_equal)});
  };
  add("ep, no budget", figures.candidates.front(), free.checked.accuracy.front());
  add("level, no budget", figures.candidates.back(), free.checked.accuracy.back());
  for (std::size_t i = 0; i < budgeted.checked.accuracy.size(); ++i) {
    const CandidateFigures& of = budgeted.checked.figures.candidates[i];
    add(fmt::format("{} in {}", name_of(of.candidate.planner.kind), format_bytes(budget.bytes)), of,
        budgeted.checked.accuracy[i]);
  }
  put("\n  {} in half of ep's memory, where ep in one chunk could not run (least budget {})\n{}", free.name,
      format_bytes(figures.reference.least_budget), table.text());
  put("  recomputed: assignments whose forward is computed again in backward\n");
}

void run(const DemoArguments& options) {
  const bool known = !options.cost_file.empty();
  const CostModel cost = known ? read_cost(options.cost_file) : CostModel{};
  const auto trace = open_trace(options.data + "/routing_step1563.npz");
  const TrainedLayer trained = read_trained_layer(options.data + "/layer.safetensors");
  const ExpertModel experts = trained_experts(trained, DataType::f32);
  const MoeShape shape = {experts.num_experts, trace->info().top_k, experts.shape};
  ExperimentSetup setup = setup_of(options, shape);
  setup.experts = &experts;
  const int ranks = static_cast<int>(options.ranks);
  const LayerPlacement contiguous = setup.placement;
  const SpillCosts spilling = spill_costs_of(shape, ranks, setup.backward, known ? &cost : nullptr);

  std::vector<Comparison> comparisons;
  Comparison budgeted;
  Budget budget;
  std::vector<Comparison> placed;
  std::vector<Placed> homes;
  for (const Selection& selection : kSelections) {
    const TraceWindow window = {LayerId(kLayer), selection.sequences, {}};
    const Batch batch = batch_of_trace(*trace, window, ranks);
    const std::int64_t elements = batch.num_tokens() * experts.shape.hidden;
    const Tensor hidden = repeated(DataType::f32, elements, trained.input);
    const Tensor grad_output = seeded(DataType::f32, elements, 1, 1.0);
    setup.hidden = &hidden;
    setup.grad_output = &grad_output;
    setup.placement = contiguous;
    setup.candidates = candidates_of(planners_of({Kind::ep, Kind::least_loaded, Kind::level}, spilling), {});
    comparisons.push_back({selection.name, measure_and_check(setup, batch, progress_line(selection.name))});
    homes.push_back(place_by_others(*trace, selection.sequences, ranks));
    setup.placement = homes.back().placement.layer(kLayer);
    setup.candidates = candidates_of(planners_of({Kind::level}, spilling), {});
    placed.push_back({selection.name, measure_and_check(setup, batch, progress_line(selection.name))});
    if (&selection != std::prev(std::end(kSelections))) continue;
    budget = half_of_plain(comparisons.back().checked.figures, cost);
    setup.placement = contiguous;
    setup.reference = plain_ep(budget);
    setup.candidates = candidates_of(planners_of({Kind::ep, Kind::level}, spilling), budget);
    setup.rounds = std::min(setup.rounds, kBudgetRounds);
    budgeted = {selection.name, measure_and_check(setup, batch, progress_line("half the memory"))};
  }
  put("layer {} of {}: {}\nmin-segment {}; medians of {} steps\n{}\n\n", kLayer, trace->info().name,
      describe(setup), kMinSegment, options.repeat, describe(spilling));
  print_comparisons(comparisons);
  print_budgeted(comparisons.back(), budgeted, budget);
  print_placements(comparisons, placed, homes);
  for (const Comparison& each : comparisons) print_picture(each);
}

}  // namespace

Subcommand add_demo(CLI::App& command) {
  auto options = std::make_shared<DemoArguments>();
  CLI::App* app =
      command.add_subcommand("demo", "What balancing and placing buy on the shipped trace and trained layer");
  app->add_option("--data", options->data, "The folder of tiny-moe")
      ->type_name("DIR")
      ->default_str(options->data);
  add_whole(*app, "--ranks", options->ranks, 1, 1024, "Threads, each with its share of experts and tokens");
  add_whole(*app, "--repeat", options->repeat, 1, 1000000, "Steps of each planner that are measured");
  app->add_option("--cost", options->cost_file,
                  "What `bench --calibrate` measured, for what is chosen by predicted seconds")
      ->type_name("FILE");
  app->footer("Example:\n  evenkeel demo --data data/tiny-moe");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
