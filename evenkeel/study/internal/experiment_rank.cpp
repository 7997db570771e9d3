#include "evenkeel/study/internal/experiment_rank.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "evenkeel/base/clock.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel::internal {

namespace {

// The layer of one rank in an arena of its own, noting down what its steps cost.
struct RankLayer {
  Budget budget;
  RankSample sample;  // of the last step
  Arena arena;
  std::optional<StepTimeline> timeline;  // where the set-up asks for it
  MoeLayer layer;

  // Collective. `experts` computes, or nothing for the library's own; `comm` must outlive this.
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
  ExperimentRank(Communicator& comm, Measurement& shared);
  void run();

 private:
  void make_layers();
  void point_at_gradients();
  RankLayer& layer_for(const Candidate& candidate);
  void take_rounds(std::size_t batch);
  void keep_last(StepSamples& samples, std::size_t slot);
  RankSample take_step(const Batch& batch, const Candidate& candidate);
  void compute(const Batch& batch, MoeLayer& layer);
  void note_bytes(RankSample& sample) const;
  void show_results(std::size_t batch);
  void clear_gradients() const;
  void wait_for_all();
  bool is_first() const { return comm_.rank().value() == 0; }

  Measurement& shared_;
  const ExperimentSetup& setup_;
  RecordingCommunicator comm_;
  CpuStream stream_;
  std::vector<std::unique_ptr<RankLayer>> layers_;  // one for each budget
  std::span<const ExpertId> natives_;
  std::vector<ExpertGradients> gradients_;
  SlotPlan last_plan_;
};

ExperimentRank::ExperimentRank(Communicator& comm, Measurement& shared)
    : shared_(shared), setup_(shared.setup), comm_(comm), natives_(setup_.placement.natives(comm_.rank())) {
  make_layers();
  if (setup_.backward) point_at_gradients();
}

void ExperimentRank::make_layers() {
  const std::int64_t max_tokens = most_tokens(shared_.batches);
  for (const Candidate& candidate : shared_.slots)
    if (std::ranges::find(layers_, candidate.budget, &RankLayer::budget) == layers_.end())
      layers_.push_back(
          std::make_unique<RankLayer>(comm_, setup_, candidate.budget, max_tokens, shared_.experts));
  std::vector<ExpertWeights> weights;
  for (ExpertId expert : natives_) weights.push_back(setup_.inputs->experts.weights(expert.value()));
  for (const auto& each : layers_) each->layer.set_weights(weights);
}

void ExperimentRank::point_at_gradients() {
  const auto writable = [](const void* at) { return static_cast<float*>(const_cast<void*>(at)); };
  for (ExpertId expert : natives_) {
    const ExpertWeights at = shared_.results.grad_experts.weights(expert.value());
    gradients_.push_back(
        {writable(at.gate_up), writable(at.down), writable(at.gate_up_bias), writable(at.down_bias)});
  }
}

RankLayer& ExperimentRank::layer_for(const Candidate& candidate) {
  RankLayer& at = **std::ranges::find(layers_, candidate.budget, &RankLayer::budget);
  at.layer.set_planner(candidate.planner);
  return at;
}

void ExperimentRank::run() {
  for (std::size_t batch = 0; batch < shared_.batches.size(); ++batch) {
    take_rounds(batch);
    if (shared_.inspect) show_results(batch);
  }
}

void ExperimentRank::take_rounds(std::size_t batch) {
  StepSamples& samples = shared_.samples[batch];
  const std::size_t slots = shared_.slots.size();
  const int warm_ups = setup_.rounds > 0 ? setup_.warm_ups : 0;
  const int all = static_cast<int>(shared_.batches.size()) * setup_.rounds;
  for (int round = -warm_ups; round < setup_.rounds; ++round) {
    for (std::size_t step = 0; step < slots; ++step) {
      const std::size_t slot = (step + static_cast<std::size_t>(round + warm_ups)) % slots;
      const RankSample sample = take_step(shared_.batches[batch], shared_.slots[slot]);
      if (round >= 0) samples.at(round, slot, comm_.rank().value()) = sample;
      if (round == setup_.rounds - 1) keep_last(samples, slot);
    }
    if (is_first() && round >= 0 && shared_.progress)
      shared_.progress(static_cast<int>(batch) * setup_.rounds + round + 1, all);
  }
}

void ExperimentRank::keep_last(StepSamples& samples, std::size_t slot) {
  if (is_first()) samples.plan(slot) = last_plan_;
  if (setup_.timelines)
    samples.records(slot)[comm_.rank().offset()] = layer_for(shared_.slots[slot]).timeline->record();
}

RankSample ExperimentRank::take_step(const Batch& batch, const Candidate& candidate) {
  RankLayer& at = layer_for(candidate);
  at.sample = {};
  at.arena.reset_peak();
  if (at.timeline) at.timeline->restart();
  wait_for_all();
  comm_.reset();
  at.sample.begin = wall_seconds();
  compute(batch, at.layer);
  at.sample.end = wall_seconds();
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
  const auto rows = [&](const Tensor& all) { return Rows{all.at(first * width), tokens, width, type}; };
  StepResults& results = shared_.results;

  ForwardState state = layer.forward(rows(setup_.inputs->hidden), batch.top_k_of(me), rows(results.output));
  StepReport report = layer.report(state);
  last_plan_.rank_loads = std::move(report.rank_loads);
  last_plan_.transfers.assign(state.plan().transfers().begin(), state.plan().transfers().end());
  last_plan_.reason = report.reason;
  if (!setup_.backward) return;
  const auto router_weights = std::span(results.grad_router_weights)
                                  .subspan(static_cast<std::size_t>(first * batch.top_k),
                                           static_cast<std::size_t>(tokens * batch.top_k));
  layer.backward(std::move(state), rows(setup_.inputs->grad_output),
                 {rows(results.grad_hidden), router_weights, gradients_});
}

void ExperimentRank::note_bytes(RankSample& sample) const {
  for (const OperationRecord& record : comm_.records()) {
    const std::string_view name = record.name;
    if (name.starts_with("dispatch")) sample.dispatch_bytes += record.bytes_sent;
    if (name.starts_with("combine")) sample.combine_bytes += record.bytes_sent;
    if (name.starts_with("dispatch") || name.starts_with("combine") || name == "counts of a chunk")
      sample.wait_seconds += std::max(0.0, record.wait_seconds());  // of two clocks
    if (name == "weight transfer" || name == "return gradients") sample.transfer_bytes += record.bytes_sent;
  }
}

void ExperimentRank::show_results(std::size_t batch) {
  for (std::size_t candidate = 0; candidate < setup_.candidates.size(); ++candidate) {
    RankLayer& at = layer_for(setup_.candidates[candidate]);
    clear_gradients();
    wait_for_all();
    compute(shared_.batches[batch], at.layer);
    wait_for_all();
    if (is_first()) shared_.inspect(candidate, shared_.results, at.layer.bitwise().holds);
    wait_for_all();
  }
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
  if (!setup.backward) memory.recompute = Recompute::automatic;  // there is nothing to keep
  return options;
}

void run_rank(Communicator& comm, Measurement& shared) {
  ExperimentRank(comm, shared).run();
}

}  // namespace evenkeel::internal
