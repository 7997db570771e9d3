// The forward pass of a layer on the CPU; layer/internal/step_sequence.h has the order of the calls.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/experts_forward.h"
#include "evenkeel/layer/internal/step_sequence.h"

namespace evenkeel::internal {

namespace {

class ForwardPass {
 public:
  // `step` will hold what backward needs. All arguments must outlive the pass.
  ForwardPass(CpuLayer& layer, SavedStep& step, ConstRows hidden, const TopK& top_k, Rows output)
      : layer_(layer), step_(step), hidden_(hidden), top_k_(top_k), output_(output) {}

  // Decides the step's plan and its chunks together with the other ranks.
  void plan() {
    layer_.schedule.decide_forward(top_k_, *layer_.planner, step_.decision);
    layer_.clock.statistics().planning_seconds = layer_.schedule.planning_seconds();
    step_.kept.reserve(kStepBlocks);
    step_.hidden = hidden_;
    if (layer_.parts.options.with_backward) save_choices();
  }

  void borrow() {
    layer_.clock.enter(Phase::transfer);
    layer_.experts.borrow(step_.decision.plan, kForward, layer_.transfer);
  }

  void give_back() {
    layer_.clock.leave_chunk(Phase::transfer);
    layer_.experts.give_back();
    layer_.transfer.finish();
  }

  bool next_chunk() {
    if (chunks_begun_ == step_.decision.chunks.size()) return false;
    chunk_ = &step_.decision.chunks[chunks_begun_++];
    return true;
  }

  void dispatch() {
    StepSchedule& schedule = layer_.schedule;
    layer_.clock.enter_chunk(Phase::plan);
    ChunkInFlight& now = in_flight_.emplace();
    now.first_token = chunk_->first_token(top_k_.tokens, schedule.units());
    now.top_k = schedule.part_of(*chunk_, top_k_);
    const StepPlan& plan = schedule.plan_chunk(now.top_k, step_.decision);

    layer_.clock.enter(Phase::dispatch);
    const Lifetime lifetime = chunk_->kept ? Lifetime::held : Lifetime::step;
    now.dispatched = layer_.exchange.dispatch(layer_.row(hidden_, now.first_token), now.top_k,
                                              schedule.counts(), plan, lifetime);
    layer_.clock.statistics().assignments += now.dispatched.positions_here;
  }

  void run_experts() {
    ChunkInFlight& now = *in_flight_;
    if (chunk_->kept) now.saved = {layer_.parts.arena, now.dispatched, layer_.budget.chunk, Lifetime::held};
    now.experts.emplace(layer_, step_.decision, now.dispatched, layer_.row(hidden_, now.first_token),
                        now.saved);
    now.experts->compute_waiting();
  }

  void combine() {
    ChunkInFlight& now = *in_flight_;
    layer_.clock.enter(Phase::combine);
    now.experts->compute_rest_and_sum(now.top_k.weights, layer_.row(output_, now.first_token));
    now.experts.reset();
    if (chunk_->kept)
      step_.kept.push_back({now.first_token, std::move(now.dispatched), std::move(now.saved)});
    in_flight_.reset();
  }

 private:
  // The chunk being processed. Its buffers are freed in reverse order of allocation.
  struct ChunkInFlight {
    std::int64_t first_token;
    TopK top_k;
    Dispatched dispatched;
    SavedActivations saved;
    std::optional<ExpertsForward> experts;
  };

  void save_choices() {
    std::byte* at = step_.choices;
    if (at == nullptr) {
      step_.own_choices = layer_.parts.arena.allocate(chunk_buffers::choices(top_k_.k, top_k_.tokens),
                                                      "choices", Lifetime::held);
      at = step_.own_choices.data();
    }
    const std::span experts(reinterpret_cast<std::int32_t*>(at), top_k_.experts.size());
    const std::span weights(reinterpret_cast<float*>(at + experts.size_bytes()), top_k_.weights.size());
    std::ranges::copy(top_k_.experts, experts.begin());
    std::ranges::copy(top_k_.weights, weights.begin());
    step_.top_k = {top_k_.tokens, top_k_.k, experts, weights};
  }

  CpuLayer& layer_;
  SavedStep& step_;
  ConstRows hidden_;
  const TopK& top_k_;
  Rows output_;
  std::size_t chunks_begun_ = 0;
  const Chunk* chunk_ = nullptr;
  std::optional<ChunkInFlight> in_flight_;
};

}  // namespace

void CpuLayer::forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) {
  clock.start(false);
  ForwardPass pass(*this, static_cast<SavedStep&>(state), hidden, top_k, output);
  run_forward(pass);
  finish_step();
}

}  // namespace evenkeel::internal
