#include "cli/experiment.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <string_view>

#include "cli/rank_layer.h"
#include "cli/round_ratio.h"
#include "cli/step_samples.h"
#include "cli/turns.h"
#include "evenkeel/base/clock.h"
#include "evenkeel/base/cores.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel::cli {

namespace {

// A rank may well wait for the others' work on a machine with few cores.
constexpr double kDeadlineSeconds = 600;

// Slots of a round: the reference, the reference again, then the candidates; where one is the reference, it
// is not measured a third time.
constexpr std::size_t kReference = 0;
constexpr std::size_t kControl = 1;
constexpr std::size_t kFirstCandidate = 2;

// Shared by all ranks: results to write, each rank its own part, and what was measured.
struct Shared {
  const ExperimentSetup& setup;
  const std::vector<Batch>& batches;
  const Inspect& inspect;
  const Progress& progress;
  std::shared_ptr<std::counting_semaphore<>> cores;  // for ranks that must share them
  std::vector<Candidate> slots;
  std::vector<StepSamples> samples;  // by batch
  std::vector<Figures> figures;      // by batch; rank 0 writes plans into them
  StepResults results;
  std::vector<StepRecord> records;  // by rank
};

class Rank {
 public:
  Rank(Communicator& comm, Shared& shared);
  void run();

 private:
  void make_layers();
  void point_at_gradients();
  RankLayer& layer_under(const Budget& budget);
  void note_least_budgets();
  void take_rounds(std::size_t batch);
  void take_step(const Batch& batch, const Candidate& candidate, RankSample& sample);
  void compute(const Batch& batch, MoeLayer& layer);
  void note_bytes(RankSample& sample) const;
  void note_plan(CandidateFigures& figures) const;
  void show_results(std::size_t batch);
  void keep_worst_timeline(Figures& figures) const;
  void clear_gradients() const;
  void wait_for_all();

  Shared& shared_;
  const ExperimentSetup& setup_;
  RecordingCommunicator comm_;
  CpuStream stream_;
  struct BudgetedLayer {
    Budget budget;
    std::unique_ptr<RankLayer> layer;
  };
  std::vector<BudgetedLayer> layers_;
  std::span<const ExpertId> natives_;
  std::vector<ExpertGradients> gradients_;
  std::vector<std::int64_t> rank_loads_;  // of the last plan
  std::int64_t transfers_ = 0;            // of the last plan
};

Rank::Rank(Communicator& comm, Shared& shared)
    : shared_(shared), setup_(shared.setup), comm_(comm), natives_(setup_.placement.natives(comm_.rank())) {
  make_layers();
  if (setup_.backward) point_at_gradients();
}

void Rank::make_layers() {
  const std::int64_t max_tokens = most_tokens(shared_.batches);
  std::shared_ptr<const ExpertFfn> experts;
  if (shared_.cores != nullptr)
    experts = in_turns(make_cpu_expert_ffn(setup_.shape.expert, setup_.backward), shared_.cores);
  for (const Candidate& candidate : shared_.slots) {
    if (std::ranges::find(layers_, candidate.budget, &BudgetedLayer::budget) != layers_.end()) continue;
    layers_.push_back({candidate.budget,
                       std::make_unique<RankLayer>(comm_, setup_, candidate.budget, max_tokens, experts)});
  }
  std::vector<ExpertWeights> weights;
  for (ExpertId expert : natives_) weights.push_back(setup_.experts->weights(expert.value()));
  for (BudgetedLayer& each : layers_) each.layer->layer().set_weights(weights);
}

void Rank::point_at_gradients() {
  const auto writable = [](const void* at) { return static_cast<float*>(const_cast<void*>(at)); };
  for (ExpertId expert : natives_) {
    const ExpertWeights at = shared_.results.grad_experts.weights(expert.value());
    gradients_.push_back(
        {writable(at.gate_up), writable(at.down), writable(at.gate_up_bias), writable(at.down_bias)});
  }
}

RankLayer& Rank::layer_under(const Budget& budget) {
  return *std::ranges::find(layers_, budget, &BudgetedLayer::budget)->layer;
}

void Rank::note_least_budgets() {
  for (Figures& figures : shared_.figures) {
    figures.reference.least_budget = layer_under(setup_.reference.budget).layer().least_budget();
    for (std::size_t i = 0; i < figures.candidates.size(); ++i)
      figures.candidates[i].least_budget =
          layer_under(shared_.slots[kFirstCandidate + i].budget).layer().least_budget();
  }
}

void Rank::run() {
  if (comm_.rank().value() == 0) note_least_budgets();
  for (std::size_t batch = 0; batch < shared_.batches.size(); ++batch) {
    take_rounds(batch);
    if (shared_.inspect) show_results(batch);
  }
}

void Rank::take_rounds(std::size_t batch) {
  Figures& figures = shared_.figures[batch];
  const std::size_t slots = shared_.slots.size();
  const int warm_ups = setup_.rounds > 0 ? setup_.warm_ups : 0;
  const int all = static_cast<int>(shared_.batches.size()) * setup_.rounds;
  for (int round = -warm_ups; round < setup_.rounds; ++round) {
    for (std::size_t step = 0; step < slots; ++step) {
      const std::size_t slot = (step + static_cast<std::size_t>(round + warm_ups)) % slots;
      RankSample unused;
      take_step(shared_.batches[batch], shared_.slots[slot],
                round < 0 ? unused : shared_.samples[batch].at(round, slot, comm_.rank().value()));
      if (comm_.rank().value() != 0 || round != setup_.rounds - 1 || slot == kControl) continue;
      note_plan(slot == kReference ? figures.reference : figures.candidates[slot - kFirstCandidate]);
    }
    if (comm_.rank().value() == 0 && round >= 0 && shared_.progress)
      shared_.progress(static_cast<int>(batch) * setup_.rounds + round + 1, all);
  }
}

void Rank::take_step(const Batch& batch, const Candidate& candidate, RankSample& sample) {
  RankLayer& at = layer_under(candidate.budget);
  at.layer().set_planner(candidate.planner);
  at.arena().reset_peak();
  at.restart_timeline();
  wait_for_all();
  comm_.reset();
  at.note_in(&sample);
  sample.begin = wall_seconds();
  compute(batch, at.layer());
  sample.end = wall_seconds();
  at.note_in(nullptr);
  sample.peak_bytes = at.arena().peak_bytes();
  note_bytes(sample);
}

void Rank::compute(const Batch& batch, MoeLayer& layer) {
  const RankId me = comm_.rank();
  const std::int64_t first = batch.first_token[me.offset()];
  const std::int64_t tokens = batch.tokens_of(me);
  const std::int64_t width = setup_.shape.expert.hidden;
  const DataType type = setup_.shape.expert.type;
  const auto rows = [&](const Tensor& all) { return Rows{all.at(first * width), tokens, width, type}; };
  const StepResults& results = shared_.results;

  ForwardState state = layer.forward(rows(*setup_.hidden), batch.top_k_of(me), rows(results.output));
  const auto loads = state.plan().rank_loads();
  rank_loads_.assign(loads.begin(), loads.end());
  transfers_ = std::ssize(state.plan().transfers());
  if (!setup_.backward) return;
  const auto router_weights = std::span(shared_.results.grad_router_weights)
                                  .subspan(static_cast<std::size_t>(first * batch.top_k),
                                           static_cast<std::size_t>(tokens * batch.top_k));
  layer.backward(std::move(state), rows(*setup_.grad_output),
                 {rows(results.grad_hidden), router_weights, gradients_});
}

void Rank::note_bytes(RankSample& sample) const {
  for (const OperationRecord& record : comm_.records()) {
    const std::string_view name = record.name;
    if (name.starts_with("dispatch")) sample.dispatch_bytes += record.bytes_sent;
    if (name.starts_with("combine")) sample.combine_bytes += record.bytes_sent;
    if (name.starts_with("dispatch") || name.starts_with("combine") || name == "counts of a chunk")
      sample.wait_seconds += std::max(0.0, record.wait_seconds());  // of two clocks
    if (name == "weight transfer" || name == "return gradients") sample.transfer_bytes += record.bytes_sent;
  }
}

void Rank::note_plan(CandidateFigures& figures) const {
  figures.rank_loads = rank_loads_;
  figures.balance = imbalance(rank_loads_);
  figures.transfers = transfers_;
}

void Rank::show_results(std::size_t batch) {
  for (std::size_t candidate = 0; candidate < setup_.candidates.size(); ++candidate) {
    RankLayer& at = layer_under(setup_.candidates[candidate].budget);
    MoeLayer& layer = at.layer();
    layer.set_planner(setup_.candidates[candidate].planner);
    clear_gradients();
    wait_for_all();
    at.restart_timeline();
    compute(shared_.batches[batch], layer);
    if (setup_.timelines) shared_.records[comm_.rank().offset()] = at.timeline();
    wait_for_all();
    if (comm_.rank().value() == 0) {
      shared_.inspect(candidate, shared_.results, layer.bitwise().holds);
      if (setup_.timelines) keep_worst_timeline(shared_.figures[batch]);
    }
    wait_for_all();
  }
}

void Rank::keep_worst_timeline(Figures& figures) const {
  const auto worst = std::ranges::max_element(shared_.records, {}, &StepRecord::peak_bytes);
  figures.timelines.push_back({static_cast<int>(worst - shared_.records.begin()), std::move(*worst)});
}

void Rank::clear_gradients() const {
  if (!setup_.backward) return;
  const ExpertShape& shape = setup_.shape.expert;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (setup_.placement.owner(natives_[i]) != comm_.rank()) continue;
    std::fill_n(gradients_[i].gate_up, shape.gate_up_rows() * shape.hidden, 0.0f);
    std::fill_n(gradients_[i].down, shape.intermediate * shape.hidden, 0.0f);
    if (!shape.biases) continue;
    std::fill_n(gradients_[i].gate_up_bias, shape.gate_up_rows(), 0.0f);
    std::fill_n(gradients_[i].down_bias, shape.hidden, 0.0f);
  }
}

void Rank::wait_for_all() {
  std::int64_t nothing[] = {0};
  comm_.all_reduce(nothing, Reduction::sum, stream_, "between steps").wait();
}

StepResults results_for(const ExperimentSetup& setup, const std::vector<Batch>& batches) {
  std::int64_t tokens = 0;
  for (const Batch& batch : batches) tokens = std::max(tokens, batch.num_tokens());
  ExpertShape shape = setup.shape.expert;
  StepResults results;
  results.output = Tensor(shape.type, tokens * shape.hidden);
  if (!setup.backward) return results;
  results.grad_hidden = Tensor(shape.type, tokens * shape.hidden);
  results.grad_router_weights.resize(static_cast<std::size_t>(tokens * setup.shape.top_k));
  shape.type = DataType::f32;
  results.grad_experts = zero_experts(shape, setup.shape.num_experts);
  return results;
}

void summarize(const StepSamples& samples, const std::vector<Candidate>& slots, Figures& figures) {
  samples.summarize(kReference, figures.reference);
  figures.reference.candidate = slots[kReference];
  for (std::size_t slot = kFirstCandidate; slot < slots.size(); ++slot) {
    CandidateFigures& of_way = figures.candidates[slot - kFirstCandidate];
    of_way.candidate = slots[slot];
    samples.summarize(slot, of_way);
    of_way.speedup = quantile(samples.time_ratios(kReference, slot), 0.5);
    of_way.time = round_ratio(samples.time_ratios(slot, kReference));
    of_way.cpu = round_ratio(samples.cpu_ratios(slot, kReference));
  }
  figures.control = round_ratio(samples.time_ratios(kReference, kControl));
}

// Plain ep reads its budget alone, so its other options make no difference.
bool is_plain_reference(const ExperimentSetup& setup, const Candidate& candidate) {
  return setup.reference.is_plain() && candidate.is_plain() && candidate.budget == setup.reference.budget;
}

// Puts the reference's figures where it was asked for.
void insert_reference(const ExperimentSetup& setup, Figures& figures) {
  for (std::size_t at = 0; at < setup.candidates.size(); ++at)
    if (is_plain_reference(setup, setup.candidates[at]))
      figures.candidates.insert(figures.candidates.begin() + static_cast<std::ptrdiff_t>(at),
                                figures.reference);
}

}  // namespace

Candidate plain_ep(const Budget& budget) {
  Candidate candidate{{}, budget};
  candidate.planner.kind = PlannerOptions::Kind::ep;
  return candidate;
}

std::vector<Candidate> candidates_of(const std::vector<PlannerOptions>& planners, const Budget& budget) {
  std::vector<Candidate> candidates;
  for (const PlannerOptions& planner : planners) candidates.push_back({planner, budget});
  return candidates;
}

bool Budget::cuts() const {
  return is_given() || memory.rule.kind != ChunkRule::Kind::exact || memory.recompute == Recompute::whole ||
         memory.recompute == Recompute::chunk;
}

std::int64_t CandidateFigures::worst_peak_bytes() const {
  return peak_bytes.empty() ? 0 : std::ranges::max(peak_bytes);
}

std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect, const Progress& progress) {
  const int ranks = setup.placement.num_ranks();
  Shared shared{setup, batches, inspect, progress, nullptr, {}, {}, {}, results_for(setup, batches), {}};
  const int cores = usable_cores();
  if (ranks > cores) shared.cores = std::make_shared<std::counting_semaphore<>>(cores);
  shared.slots = {setup.reference, setup.reference};
  std::ranges::copy_if(setup.candidates, std::back_inserter(shared.slots),
                       [&](const Candidate& candidate) { return !is_plain_reference(setup, candidate); });
  shared.figures.resize(batches.size());
  for (Figures& figures : shared.figures) figures.candidates.resize(shared.slots.size() - kFirstCandidate);
  shared.records.resize(static_cast<std::size_t>(ranks));
  shared.samples.assign(batches.size(), StepSamples(setup.rounds, shared.slots.size(), ranks));

  ThreadOptions threads;
  threads.deadline_seconds = kDeadlineSeconds;
  run_ranks(
      ranks, [&](Communicator& comm) { Rank(comm, shared).run(); }, threads);

  for (std::size_t batch = 0; batch < batches.size() && setup.rounds > 0; ++batch) {
    summarize(shared.samples[batch], shared.slots, shared.figures[batch]);
    insert_reference(setup, shared.figures[batch]);
  }
  return std::move(shared.figures);
}

}  // namespace evenkeel::cli
