#include "evenkeel/study/internal/experiment_rank.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "evenkeel/base/clock.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/study/internal/gather_records.h"

namespace evenkeel::internal {

namespace {

// The layer of one rank, in its own arena. Records the costs of its steps.
struct RankLayer {
  Budget budget;
  RankSample sample;  // costs of the last step
  Arena arena;
  std::optional<StepTimeline> timeline;  // only if the set-up asks for timelines
  MoeLayer layer;

  // Collective. `experts` computes the products; if it is null, the library's own kernels do. `comm` must
  // outlive this object.
  RankLayer(Communicator& comm, const ExperimentSetup& setup, const Budget& memory, std::int64_t max_tokens,
            std::shared_ptr<const ExpertFfn> experts)
      : budget(memory),
        arena(Device::cpu(), memory.bytes),
        layer(comm, arena, setup.shape, setup.placement,
              watched(layer_options(setup, memory, max_tokens), std::move(experts), setup.timelines)) {}

 private:
  MoeOptions watched(MoeOptions options, std::shared_ptr<const ExpertFfn> experts, bool timelines) {
    options.cpu().experts = std::move(experts);
    options.cpu().on_step = [this](const StepStatistics& step) { note(step); };
    if (!timelines) return options;
    timeline.emplace(arena);
    options.cpu().on_phase = [this](const TimedPhase& phase) { timeline->add(phase); };
    return options;
  }

  void note(const StepStatistics& step) {
    sample.cpu_seconds[step.backward ? 1 : 0] = step.cpu_seconds;
    sample.planning_seconds += step.planning_seconds;
    sample.assignments += step.assignments;
    sample.recomputed_assignments += step.recomputed_assignments;
    if (!step.backward) sample.chunks = step.chunks;
  }
};

class ExperimentRank {
 public:
  ExperimentRank(Communicator& comm, const Measurement& what);
  std::vector<StepSamples> run();

 private:
  StepResults results_for(std::int64_t tokens, std::int64_t experts) const;
  void make_layers();
  void point_at_gradients();
  RankLayer& layer_for(const Candidate& candidate);
  StepSamples take_rounds(std::size_t batch);
  StepRecord from_begin(StepRecord record) const;
  void collect(StepSamples& samples);
  RankSample take_step(const Batch& batch, const Candidate& candidate);
  void compute(const Batch& batch, MoeLayer& layer);
  void note_bytes(RankSample& sample) const;
  void show_results(std::size_t batch);
  void bring_results(const Batch& batch);
  void clear_gradients() const;
  void wait_for_all();
  bool is_first() const { return comm_.rank().value() == 0; }

  const Measurement& what_;
  const ExperimentSetup& setup_;
  RecordingCommunicator comm_;
  CpuStream stream_;
  std::vector<std::unique_ptr<RankLayer>> layers_;  // one for each budget
  std::span<const ExpertId> natives_;
  StepResults results_;      // for this rank's tokens and its experts at home
  StepResults all_results_;  // for all ranks; only on the first rank, and only if `inspect` is set
  std::vector<ExpertGradients> gradients_;
  SlotPlan last_plan_;
  double step_begin_ = 0;  // start of the last step; 0 for threads, which share one clock
};

ExperimentRank::ExperimentRank(Communicator& comm, const Measurement& what)
    : what_(what),
      setup_(what.setup),
      comm_(comm, setup_.where.node_of_rank),
      natives_(setup_.placement.natives(comm_.rank())) {
  make_layers();
  results_ = results_for(most_tokens(what_.batches), std::ssize(natives_));
  if (what_.inspect && is_first()) {
    std::int64_t tokens = 0;
    for (const Batch& batch : what_.batches) tokens = std::max(tokens, batch.num_tokens());
    all_results_ = results_for(tokens, setup_.shape.num_experts);
  }
  if (setup_.backward) point_at_gradients();
}

StepResults ExperimentRank::results_for(std::int64_t tokens, std::int64_t experts) const {
  ExpertShape shape = setup_.shape.expert;
  StepResults results;
  results.output = Tensor(shape.type, tokens * shape.hidden);
  if (!setup_.backward) return results;
  results.grad_hidden = Tensor(shape.type, tokens * shape.hidden);
  results.grad_router_weights.resize(static_cast<std::size_t>(tokens * setup_.shape.top_k));
  shape.type = DataType::f32;
  results.grad_experts = zero_experts(shape, static_cast<int>(experts));
  return results;
}

void ExperimentRank::make_layers() {
  const std::int64_t max_tokens = most_tokens(what_.batches);
  for (const Candidate& candidate : what_.slots)
    if (std::ranges::find(layers_, candidate.budget, &RankLayer::budget) == layers_.end())
      layers_.push_back(
          std::make_unique<RankLayer>(comm_, setup_, candidate.budget, max_tokens, what_.experts));
  std::vector<ExpertWeights> weights;
  for (ExpertId expert : natives_) weights.push_back(setup_.inputs->experts.weights(expert.value()));
  for (const auto& each : layers_) each->layer.set_weights(weights);
}

void ExperimentRank::point_at_gradients() {
  const auto writable = [](const void* at) { return static_cast<float*>(const_cast<void*>(at)); };
  for (std::int64_t native = 0; native < std::ssize(natives_); ++native) {
    const ExpertWeights at = results_.grad_experts.weights(native);
    gradients_.push_back(
        {writable(at.gate_up), writable(at.down), writable(at.gate_up_bias), writable(at.down_bias)});
  }
}

RankLayer& ExperimentRank::layer_for(const Candidate& candidate) {
  RankLayer& at = **std::ranges::find(layers_, candidate.budget, &RankLayer::budget);
  at.layer.set_planner(candidate.planner);
  return at;
}

std::vector<StepSamples> ExperimentRank::run() {
  std::vector<StepSamples> samples;
  for (std::size_t batch = 0; batch < what_.batches.size(); ++batch) {
    samples.push_back(take_rounds(batch));
    if (what_.inspect) show_results(batch);
  }
  return samples;
}

StepSamples ExperimentRank::take_rounds(std::size_t batch) {
  const std::size_t slots = what_.slots.size();
  StepSamples samples(setup_.rounds, slots, comm_.size());
  const int warm_ups = setup_.rounds > 0 ? setup_.warm_ups : 0;
  const int all = static_cast<int>(what_.batches.size()) * setup_.rounds;
  for (int round = -warm_ups; round < setup_.rounds; ++round) {
    for (std::size_t step = 0; step < slots; ++step) {
      const std::size_t slot = (step + static_cast<std::size_t>(round + warm_ups)) % slots;
      const RankSample sample = take_step(what_.batches[batch], what_.slots[slot]);
      if (round >= 0) samples.at(round, slot, comm_.rank().value()) = sample;
      if (round < setup_.rounds - 1) continue;
      samples.plan(slot) = last_plan_;
      if (setup_.timelines)
        samples.records(slot)[comm_.rank().offset()] =
            from_begin(layer_for(what_.slots[slot]).timeline->record());
    }
    if (is_first() && round >= 0 && what_.progress)
      what_.progress(static_cast<int>(batch) * setup_.rounds + round + 1, all);
  }
  collect(samples);
  return samples;
}

StepRecord ExperimentRank::from_begin(StepRecord record) const {
  for (TimedPhase& phase : record.phases) {
    phase.begin -= step_begin_;
    phase.end -= step_begin_;
  }
  for (double& seconds : record.seconds) seconds -= step_begin_;
  return record;
}

// Gathers the samples of the other ranks.
void ExperimentRank::collect(StepSamples& samples) {
  std::vector<RankSample> mine;
  for (int round = 0; round < setup_.rounds; ++round)
    for (std::size_t slot = 0; slot < what_.slots.size(); ++slot)
      mine.push_back(samples.at(round, slot, comm_.rank().value()));
  const std::vector<RankSample> all = gather(comm_, std::span<const RankSample>(mine), "figures");
  auto next = all.cbegin();
  for (int rank = 0; rank < comm_.size(); ++rank)
    for (int round = 0; round < setup_.rounds; ++round)
      for (std::size_t slot = 0; slot < what_.slots.size(); ++slot) samples.at(round, slot, rank) = *next++;
  for (std::size_t slot = 0; setup_.timelines && slot < what_.slots.size(); ++slot)
    samples.records(slot) = gather_records(comm_, samples.records(slot)[comm_.rank().offset()]);
}

RankSample ExperimentRank::take_step(const Batch& batch, const Candidate& candidate) {
  RankLayer& at = layer_for(candidate);
  at.sample = {};
  at.arena.reset_peak();
  if (at.timeline) at.timeline->restart();
  wait_for_all();
  comm_.reset();
  // Processes may run on hosts with unrelated clocks, so their times count from the start of the step.
  step_begin_ = setup_.where.comm == nullptr ? 0 : wall_seconds();
  at.sample.begin = wall_seconds() - step_begin_;
  compute(batch, at.layer);
  at.sample.end = wall_seconds() - step_begin_;
  at.sample.peak_bytes = at.arena.peak_bytes();
  note_bytes(at.sample);
  last_plan_.least_budget = at.layer.least_budget();
  return at.sample;
}

void ExperimentRank::compute(const Batch& batch, MoeLayer& layer) {
  const RankId me = comm_.rank();
  const std::int64_t first = batch.first_token[me.offset()];
  const std::int64_t tokens = batch.tokens_of(me);
  const std::int64_t width = setup_.shape.expert.hidden;
  const DataType type = setup_.shape.expert.type;
  const auto given = [&](const Tensor& all) { return Rows{all.at(first * width), tokens, width, type}; };
  const auto made = [&](const Tensor& own) { return Rows{own.at(0), tokens, width, type}; };

  ForwardState state = layer.forward(given(setup_.inputs->hidden), batch.top_k_of(me), made(results_.output));
  StepReport report = layer.report(state);
  last_plan_.rank_loads = std::move(report.rank_loads);
  last_plan_.transfers.assign(state.plan().transfers().begin(), state.plan().transfers().end());
  last_plan_.reason = report.reason;
  if (!setup_.backward) return;
  const auto router_weights =
      std::span(results_.grad_router_weights).first(static_cast<std::size_t>(tokens * batch.top_k));
  layer.backward(std::move(state), given(setup_.inputs->grad_output),
                 {made(results_.grad_hidden), router_weights, gradients_});
}

void ExperimentRank::note_bytes(RankSample& sample) const {
  for (const OperationRecord& record : comm_.records()) {
    const std::string_view name = record.name;
    const bool dispatches = name.starts_with("dispatch"), combines = name.starts_with("combine");
    const bool transfers = name == "weight transfer" || name == "return gradients";
    const std::int64_t between = record.bytes_sent_between_nodes;
    if (dispatches) sample.dispatch_bytes += record.bytes_sent;
    if (combines) sample.combine_bytes += record.bytes_sent;
    if (transfers) sample.transfer_bytes += record.bytes_sent;
    if (dispatches || combines || transfers) sample.bytes_between_nodes += between;
    if (dispatches) sample.dispatch_bytes_between_nodes += between;
    if (transfers) sample.transfer_bytes_between_nodes += between;
    if (dispatches || combines || name == "counts of a chunk")
      sample.wait_seconds += std::max(0.0, record.wait_seconds());  // max, because clocks differ a little
  }
}

void ExperimentRank::show_results(std::size_t batch) {
  for (std::size_t candidate = 0; candidate < setup_.candidates.size(); ++candidate) {
    RankLayer& at = layer_for(setup_.candidates[candidate]);
    clear_gradients();
    compute(what_.batches[batch], at.layer);
    bring_results(what_.batches[batch]);
    if (is_first()) what_.inspect(candidate, all_results_, at.layer.bitwise().holds);
  }
}

namespace {

using Parts = std::vector<std::span<std::byte>>;

std::span<std::byte> part(const Tensor& of, std::int64_t begin, std::int64_t count) {
  return {of.at(begin), static_cast<std::size_t>(count * bytes_of(of.type()))};
}

// Adds the results of tokens [first, first + tokens) and of their assignments.
void add_tokens(StepResults& of, std::int64_t first, std::int64_t tokens, const MoeShape& shape,
                Parts& parts) {
  const std::int64_t width = shape.expert.hidden;
  parts.push_back(part(of.output, first * width, tokens * width));
  if (of.grad_router_weights.empty()) return;
  parts.push_back(part(of.grad_hidden, first * width, tokens * width));
  parts.push_back(std::as_writable_bytes(std::span(of.grad_router_weights)
                                             .subspan(static_cast<std::size_t>(first * shape.top_k),
                                                      static_cast<std::size_t>(tokens * shape.top_k))));
}

// Adds the gradients of one expert.
void add_gradients(const ExpertModel& of, std::int64_t expert, Parts& parts) {
  for (const Tensor* tensor : {&of.gate_up, &of.down, &of.gate_up_bias, &of.down_bias}) {
    const std::int64_t each = tensor->count() / std::max(of.num_experts, 1);
    parts.push_back(part(*tensor, expert * each, each));
  }
}

}  // namespace

// Sends results to the first rank: those of all tokens, and the gradients of every expert from its owner.
void ExperimentRank::bring_results(const Batch& batch) {
  const LayerPlacement& placement = setup_.placement;
  const bool gradients = setup_.backward;
  Parts mine, all;
  add_tokens(results_, 0, batch.tokens_of(comm_.rank()), setup_.shape, mine);
  for (std::int64_t i = 0; gradients && i < std::ssize(natives_); ++i)
    if (placement.owner(natives_[static_cast<std::size_t>(i)]) == comm_.rank())
      add_gradients(results_.grad_experts, i, mine);
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  for (const std::span<std::byte> bytes : mine) sends.push_back({RankId(0), bytes});
  for (RankId rank : indices<RankId>(is_first() ? comm_.size() : 0)) {
    all.clear();
    add_tokens(all_results_, batch.first_token[rank.offset()], batch.tokens_of(rank), setup_.shape, all);
    if (gradients)
      for (ExpertId expert : placement.natives(rank))
        if (placement.owner(expert) == rank) add_gradients(all_results_.grad_experts, expert.value(), all);
    for (const std::span<std::byte> bytes : all) receives.push_back({rank, bytes});
  }
  comm_.send_receive(sends, receives, stream_, "results").wait();
}

void ExperimentRank::clear_gradients() const {
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

void ExperimentRank::wait_for_all() {
  std::int64_t nothing[] = {0};
  comm_.all_reduce(nothing, Reduction::sum, stream_, "between steps").wait();
}

}  // namespace

MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens) {
  MoeOptions options;
  options.planner = setup.reference.planner;
  options.max_tokens = max_tokens;
  options.with_backward = setup.backward;
  MemoryOptions& memory = options.cpu().memory;
  memory = budget.memory;
  if (setup.where.two_levels) options.cpu().node_of_rank = setup.where.node_of_rank;
  options.cpu().sum_in_nodes = setup.where.sum_in_nodes;
  if (!setup.backward) memory.recompute = Recompute::automatic;  // without backward, nothing needs to be kept
  return options;
}

std::vector<StepSamples> run_rank(Communicator& comm, const Measurement& what) {
  return ExperimentRank(comm, what).run();
}

}  // namespace evenkeel::internal
