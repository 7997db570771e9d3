#include "cli/experiment.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <string_view>
#include <thread>

#include "cli/step_samples.h"
#include "cli/turns.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"

namespace evenkeel::cli {

namespace {

constexpr int kWarmUps = 2;
// A rank may well wait for the others' work on a machine with few cores.
constexpr double kDeadlineSeconds = 600;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Slots of a round: ep, ep again, then the planners; ep is not measured a third time.
constexpr std::size_t kPlain = 0;
constexpr std::size_t kControl = 1;
constexpr std::size_t kFirstPlanner = 2;

// Shared by all ranks: results to write, each rank its own part, and what was measured.
struct Shared {
  const ExperimentSetup& setup;
  const std::vector<Batch>& batches;
  const Inspect& inspect;
  const Progress& progress;
  std::shared_ptr<std::counting_semaphore<>> cores;  // for ranks that must share them
  std::vector<PlannerOptions> slots;
  std::vector<StepSamples> samples;  // by batch
  std::vector<Figures> figures;      // by batch; rank 0 writes plans into them
  StepResults results;
};

class Rank {
 public:
  Rank(Communicator& comm, Shared& shared);
  void run();

 private:
  void take_rounds(std::size_t batch);
  void take_step(const Batch& batch, std::size_t slot, RankSample& sample);
  void compute(const Batch& batch);
  void note_bytes(RankSample& sample) const;
  void note_plan(PlannerFigures& figures) const;
  void show_results(const Batch& batch);
  void clear_gradients() const;
  void wait_for_all();

  Shared& shared_;
  const ExperimentSetup& setup_;
  RecordingCommunicator comm_;
  Arena arena_;
  CpuStream stream_;
  MoeLayer layer_;
  std::vector<ExpertGradients> gradients_;
  std::vector<std::int64_t> rank_loads_;  // of the last plan
  std::int64_t transfers_ = 0;            // of the last plan
  RankSample* sample_ = nullptr;
};

MoeOptions layer_options(const Shared& shared, std::function<void(const StepStatistics&)> on_step) {
  MoeOptions options;
  options.planner = shared.slots.front();
  options.max_tokens = 1;
  for (const Batch& batch : shared.batches)
    options.max_tokens = std::max(options.max_tokens, batch.most_tokens());
  options.with_backward = shared.setup.backward;
  options.memory = shared.setup.budget.memory;
  if (!options.with_backward) options.memory.recompute = Recompute::automatic;  // there is nothing to keep
  if (shared.cores != nullptr)
    options.experts =
        in_turns(make_cpu_expert_ffn(shared.setup.shape.expert, options.with_backward), shared.cores);
  options.on_step = std::move(on_step);
  return options;
}

Rank::Rank(Communicator& comm, Shared& shared)
    : shared_(shared),
      setup_(shared.setup),
      comm_(comm),
      arena_(Device::cpu(), setup_.budget.bytes),
      layer_(comm_, arena_, setup_.shape, setup_.placement,
             layer_options(shared, [this](const StepStatistics& step) {
               if (sample_ == nullptr) return;
               sample_->cpu_seconds[step.backward ? 1 : 0] = step.cpu_seconds;
               sample_->planning_seconds += step.planning_seconds;
               sample_->assignments += step.assignments;
               sample_->recomputed_assignments += step.recomputed_assignments;
               if (!step.backward) sample_->chunks = step.chunks;
             })) {
  std::vector<ExpertWeights> natives;
  for (ExpertId expert : layer_.natives()) natives.push_back(setup_.experts->weights(expert.value()));
  layer_.set_weights(natives);
  if (!setup_.backward) return;
  const auto writable = [](const void* at) { return static_cast<float*>(const_cast<void*>(at)); };
  for (ExpertId expert : layer_.natives()) {
    const ExpertWeights at = shared_.results.grad_experts.weights(expert.value());
    gradients_.push_back(
        {writable(at.gate_up), writable(at.down), writable(at.gate_up_bias), writable(at.down_bias)});
  }
}

void Rank::run() {
  if (comm_.rank().value() == 0)
    for (Figures& figures : shared_.figures) figures.least_budget = layer_.least_budget();
  for (std::size_t batch = 0; batch < shared_.batches.size(); ++batch) {
    take_rounds(batch);
    if (shared_.inspect) show_results(shared_.batches[batch]);
  }
}

void Rank::take_rounds(std::size_t batch) {
  Figures& figures = shared_.figures[batch];
  const std::size_t slots = shared_.slots.size();
  const int warm_ups = setup_.rounds > 0 ? kWarmUps : 0;
  const int all = static_cast<int>(shared_.batches.size()) * setup_.rounds;
  for (int round = -warm_ups; round < setup_.rounds; ++round) {
    for (std::size_t step = 0; step < slots; ++step) {
      const std::size_t slot = (step + static_cast<std::size_t>(round + warm_ups)) % slots;
      RankSample unused;
      take_step(shared_.batches[batch], slot,
                round < 0 ? unused : shared_.samples[batch].at(round, slot, comm_.rank().value()));
      if (comm_.rank().value() != 0 || round != setup_.rounds - 1 || slot == kControl) continue;
      note_plan(slot == kPlain ? figures.ep : figures.planners[slot - kFirstPlanner]);
    }
    if (comm_.rank().value() == 0 && round >= 0 && shared_.progress)
      shared_.progress(static_cast<int>(batch) * setup_.rounds + round + 1, all);
  }
}

void Rank::take_step(const Batch& batch, std::size_t slot, RankSample& sample) {
  layer_.set_planner(shared_.slots[slot]);
  arena_.reset_peak();
  wait_for_all();
  comm_.reset();
  sample_ = &sample;
  sample.begin = seconds_now();
  compute(batch);
  sample.end = seconds_now();
  sample_ = nullptr;
  sample.peak_bytes = arena_.peak_bytes();
  note_bytes(sample);
}

void Rank::compute(const Batch& batch) {
  const RankId me = comm_.rank();
  const std::int64_t first = batch.first_token[me.offset()];
  const std::int64_t tokens = batch.tokens_of(me);
  const std::int64_t width = setup_.shape.expert.hidden;
  const DataType type = setup_.shape.expert.type;
  const auto rows = [&](const Tensor& all) { return Rows{all.at(first * width), tokens, width, type}; };
  const StepResults& results = shared_.results;

  ForwardState state = layer_.forward(rows(*setup_.hidden), batch.top_k_of(me), rows(results.output));
  const auto loads = state.plan().rank_loads();
  rank_loads_.assign(loads.begin(), loads.end());
  transfers_ = std::ssize(state.plan().transfers());
  if (!setup_.backward) return;
  const auto router_weights = std::span(shared_.results.grad_router_weights)
                                  .subspan(static_cast<std::size_t>(first * batch.top_k),
                                           static_cast<std::size_t>(tokens * batch.top_k));
  layer_.backward(std::move(state), rows(*setup_.grad_output),
                  {rows(results.grad_hidden), router_weights, gradients_});
}

void Rank::note_bytes(RankSample& sample) const {
  for (const OperationRecord& record : comm_.records()) {
    const std::string_view name = record.name;
    if (name.starts_with("dispatch")) sample.dispatch_bytes += record.bytes_sent;
    if (name.starts_with("combine")) sample.combine_bytes += record.bytes_sent;
    if (name == "weight transfer" || name == "return gradients") sample.transfer_bytes += record.bytes_sent;
  }
}

void Rank::note_plan(PlannerFigures& figures) const {
  figures.rank_loads = rank_loads_;
  figures.balance = imbalance(rank_loads_);
  figures.transfers = transfers_;
}

void Rank::show_results(const Batch& batch) {
  for (std::size_t planner = 0; planner < setup_.planners.size(); ++planner) {
    layer_.set_planner(setup_.planners[planner]);
    clear_gradients();
    wait_for_all();
    compute(batch);
    wait_for_all();
    if (comm_.rank().value() == 0) shared_.inspect(planner, shared_.results, layer_.bitwise().holds);
    wait_for_all();
  }
}

void Rank::clear_gradients() const {
  if (!setup_.backward) return;
  const ExpertShape& shape = setup_.shape.expert;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (setup_.placement.owner(layer_.natives()[i]) != comm_.rank()) continue;
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

StepResults room_for_results(const ExperimentSetup& setup, const std::vector<Batch>& batches) {
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

void summarize(const StepSamples& samples, const std::vector<PlannerOptions>& slots, Figures& figures) {
  samples.summarize(kPlain, figures.ep);
  figures.ep.planner = slots[kPlain];
  for (std::size_t slot = kFirstPlanner; slot < slots.size(); ++slot) {
    PlannerFigures& of_planner = figures.planners[slot - kFirstPlanner];
    of_planner.planner = slots[slot];
    samples.summarize(slot, of_planner);
    of_planner.speedup = quantile(samples.ratios(kPlain, slot), 0.5);
  }
  const std::vector<double> control = samples.ratios(kPlain, kControl);
  figures.control_ratio = quantile(control, 0.5);
  figures.control_spread = (quantile(control, 0.9) - quantile(control, 0.1)) / 2;
}

bool is_plain(const PlannerOptions& options) {
  return options.kind == PlannerOptions::Kind::ep;
}

// Puts ep's figures where it was asked for.
void insert_plain(const std::vector<PlannerOptions>& planners, Figures& figures) {
  for (std::size_t at = 0; at < planners.size(); ++at)
    if (is_plain(planners[at]))
      figures.planners.insert(figures.planners.begin() + static_cast<std::ptrdiff_t>(at), figures.ep);
}

}  // namespace

bool Budget::cuts() const {
  return is_given() || memory.rule.kind != ChunkRule::Kind::exact || memory.recompute == Recompute::whole ||
         memory.recompute == Recompute::chunk;
}

std::int64_t PlannerFigures::worst_peak_bytes() const {
  return peak_bytes.empty() ? 0 : std::ranges::max(peak_bytes);
}

std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect, const Progress& progress) {
  const int ranks = setup.placement.num_ranks();
  Shared shared{setup, batches, inspect, progress, nullptr, {}, {}, {}, room_for_results(setup, batches)};
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 0 && ranks > cores) shared.cores = std::make_shared<std::counting_semaphore<>>(cores);
  PlannerOptions plain;
  plain.kind = PlannerOptions::Kind::ep;
  shared.slots = {plain, plain};
  std::ranges::copy_if(setup.planners, std::back_inserter(shared.slots), std::not_fn(is_plain));
  shared.figures.resize(batches.size());
  for (Figures& figures : shared.figures) figures.planners.resize(shared.slots.size() - kFirstPlanner);
  shared.samples.assign(batches.size(), StepSamples(setup.rounds, shared.slots.size(), ranks));

  ThreadOptions threads;
  threads.deadline_seconds = kDeadlineSeconds;
  run_ranks(
      ranks, [&](Communicator& comm) { Rank(comm, shared).run(); }, threads);

  for (std::size_t batch = 0; batch < batches.size() && setup.rounds > 0; ++batch) {
    summarize(shared.samples[batch], shared.slots, shared.figures[batch]);
    insert_plain(setup.planners, shared.figures[batch]);
  }
  return std::move(shared.figures);
}

}  // namespace evenkeel::cli
