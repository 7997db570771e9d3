#include "evenkeel/study/demo.h"

#include <algorithm>
#include <initializer_list>

#include "evenkeel/io/trace_file.h"
#include "evenkeel/io/trained_layer.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/study/calibration.h"

namespace evenkeel {

namespace {

using Kind = PlannerOptions::Kind;

constexpr int kLayer = 4;  // the layer whose weights come with the project
// The batches are small, so small segments are worth moving.
constexpr std::int64_t kMinSegment = 64;
// The steps under a budget need fewer rounds.
constexpr int kBudgetRounds = 7;

// Each selection has 16 sequences of 256 tokens. The trace has 32 sequences of each kind of text: python,
// cpp, prose, data and asm, in this order.
struct Selection {
  const char* name;
  TraceWindow::Sequences sequences;
};
constexpr Selection kSelections[] = {{"mixed text", {0, 160, 10}}, {"asm alone", {128, 160, 2}}};

// Work moves only if that is predicted to save time, because mixed text is nearly even.
std::vector<Candidate> candidates_for(std::initializer_list<Kind> kinds, const SpillCosts& costs,
                                      const Budget& budget = {}) {
  std::vector<Candidate> candidates;
  for (const Kind kind : kinds)
    candidates.push_back(
        {{.kind = kind, .min_segment = kMinSegment, .imbalance_threshold_thousandths = 0, .costs = costs},
         budget});
  return candidates;
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

// Chooses homes from other sequences of the same text: steps run the even sequences, and the odd ones choose
// the homes.
Placement place_by_others(TraceReader& trace, const TraceWindow::Sequences& run, int num_ranks,
                          DemoText& text) {
  const Topology topology = Topology::uniform(1, num_ranks);
  const RoutingProfile others = profile_of(trace, {run.begin + 1, run.end, 2});
  const RoutingProfile own = profile_of(trace, run);
  const SourceCounts none;
  const PlacementProblem judged{.profile = own, .topology = topology, .sources = none};
  const Placement contiguous = Placement::contiguous(own.num_layers(), own.num_experts(), num_ranks);
  Placement placement = place(others, topology).placement;
  text.contiguous_max_over_mean = placement_quality(judged, contiguous).max_over_mean_mean;
  text.placed_max_over_mean = placement_quality(judged, placement).max_over_mean_mean;
  return placement;
}

// Measures with a budget: half of plain ep's worst peak on the last text. With that budget, ep needs several
// chunks.
void measure_in_half(const DemoSetup& setup, ExperimentSetup experiment, const Batch& batch,
                     const SpillCosts& costs, const NamedProgress& progress, Demo& demo) {
  const CandidateFigures& free = demo.texts.back().contiguous.figures.reference;
  demo.budget.bytes = std::max(free.worst_peak_bytes() / 2, free.least_budget);
  demo.budget.memory.cost = setup.cost.value_or(Machine{});
  experiment.reference = plain_ep(demo.budget);
  experiment.candidates = candidates_for({Kind::ep, Kind::level}, costs, demo.budget);
  experiment.rounds = std::min(setup.rounds, kBudgetRounds);
  demo.budgeted = measure_and_check(experiment, batch, progress("half the memory"));
}

}  // namespace

Demo measure_demo(const DemoSetup& setup, const NamedProgress& progress) {
  const auto trace = open_trace(setup.data + "/routing_step1563.npz");
  const TrainedLayer trained = read_trained_layer(setup.data + "/layer.safetensors");
  LayerInputs inputs{trained_experts(trained, DataType::f32), {}, {}};
  const MoeShape shape = {inputs.experts.num_experts, trace->info().top_k, inputs.experts.shape};
  const auto contiguous = LayerPlacement::contiguous(shape.num_experts, setup.ranks);
  ExperimentSetup experiment{shape, contiguous, &inputs, true, setup.rounds};
  const SpillCosts costs = spill_costs_of(shape, setup.ranks, true, setup.cost ? &*setup.cost : nullptr);
  const std::vector<Candidate> planners = candidates_for({Kind::ep, Kind::least_loaded, Kind::level}, costs);

  Demo demo{trace->info().name, kLayer, experiment, {}, {}, {}};
  demo.setup.inputs = nullptr;  // `inputs` is destroyed before `demo`
  demo.setup.candidates = planners;
  Batch batch;
  for (const Selection& selection : kSelections) {
    DemoText& text = demo.texts.emplace_back();
    text.name = selection.name;
    batch = batch_of_trace(*trace, {LayerId(kLayer), selection.sequences, {}}, setup.ranks);
    const std::int64_t elements = batch.num_tokens() * shape.expert.hidden;
    inputs.hidden = repeated_tensor(DataType::f32, elements, trained.input);
    inputs.grad_output = seeded_tensor(DataType::f32, elements, 1, 1.0);
    experiment.placement = contiguous;
    experiment.candidates = planners;
    text.contiguous = measure_and_check(experiment, batch, progress(text.name));
    experiment.placement = place_by_others(*trace, selection.sequences, setup.ranks, text).layer(kLayer);
    experiment.candidates = {planners.back()};
    text.placed = measure_and_check(experiment, batch, progress(text.name));
  }
  experiment.placement = contiguous;
  measure_in_half(setup, experiment, batch, costs, progress, demo);
  return demo;
}

}  // namespace evenkeel
