#include "evenkeel/study/internal/experiment_rank.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "evenkeel/comm/recording.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/study/internal/rank_layer.h"

namespace evenkeel::internal {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class ExperimentRank {
 public:
  ExperimentRank(Communicator& comm, Measurement& shared);
  void run();

 private:
  void make_layers();
  void point_at_gradients();
  RankLayer& layer_for(const Candidate& candidate);
  void take_rounds(std::size_t batch);
  void take_step(const Batch& batch, const Candidate& candidate, RankSample& sample);
  void compute(const Batch& batch, MoeLayer& layer);
  void note_bytes(RankSample& sample) const;
  void show_results(std::size_t batch);
  void keep_worst_timeline(std::size_t batch) const;
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
  for (const auto& each : layers_) each->layer().set_weights(weights);
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
  at.layer().set_planner(candidate.planner);
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
      RankSample unused;
      take_step(shared_.batches[batch], shared_.slots[slot],
                round < 0 ? unused : samples.at(round, slot, comm_.rank().value()));
      if (is_first() && round == setup_.rounds - 1) samples.plan(slot) = last_plan_;
    }
    if (is_first() && round >= 0 && shared_.progress)
      shared_.progress(static_cast<int>(batch) * setup_.rounds + round + 1, all);
  }
}

void ExperimentRank::take_step(const Batch& batch, const Candidate& candidate, RankSample& sample) {
  RankLayer& at = layer_for(candidate);
  at.arena().reset_peak();
  at.restart_timeline();
  wait_for_all();
  comm_.reset();
  at.note_in(&sample);
  sample.begin = seconds_now();
  compute(batch, at.layer());
  sample.end = seconds_now();
  at.note_in(nullptr);
  last_plan_.least_budget = at.layer().least_budget();
  sample.peak_bytes = at.arena().peak_bytes();
  note_bytes(sample);
}

void ExperimentRank::compute(const Batch& batch, MoeLayer& layer) {
  const RankId me = comm_.rank();
  const std::int64_t first = batch.first_token[me.offset()];
  const std::int64_t tokens = batch.tokens_of(me);
  const std::int64_t width = setup_.shape.expert.hidden;
  const DataType type = setup_.shape.expert.type;
  const auto rows = [&](const Tensor& all) { return Rows{all.at(first * width), tokens, width, type}; };
  StepResults& results = shared_.results;

  ForwardState state =
      layer.forward(rows(setup_.inputs->hidden), batch.top_k_of(me), rows(results.output));
  const auto loads = state.plan().rank_loads();
  last_plan_.rank_loads.assign(loads.begin(), loads.end());
  last_plan_.transfers = std::ssize(state.plan().transfers());
  if (!setup_.backward) return;
  const auto router_weights =
      std::span(results.grad_router_weights)
          .subspan(static_cast<std::size_t>(first * batch.top_k), static_cast<std::size_t>(tokens * batch.top_k));
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
    at.restart_timeline();
    compute(shared_.batches[batch], at.layer());
    if (setup_.timelines) shared_.records[comm_.rank().offset()] = at.timeline();
    wait_for_all();
    if (is_first()) {
      shared_.inspect(candidate, shared_.results, at.layer().bitwise().holds);
      if (setup_.timelines) keep_worst_timeline(batch);
    }
    wait_for_all();
  }
}

void ExperimentRank::keep_worst_timeline(std::size_t batch) const {
  const auto worst = std::ranges::max_element(shared_.records, {}, &StepRecord::peak_bytes);
  shared_.timelines[batch].push_back(
      {static_cast<int>(worst - shared_.records.begin()), std::move(*worst)});
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

void run_rank(Communicator& comm, Measurement& shared) {
  ExperimentRank(comm, shared).run();
}

}  // namespace evenkeel::internal
