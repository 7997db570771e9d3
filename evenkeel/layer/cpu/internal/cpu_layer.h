// The part of a layer that carries out its steps on the CPU. Its passes are in forward_pass.cpp and
// backward_pass.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/clock.h"
#include "evenkeel/base/matrix_view.h"
#include "evenkeel/budget/least_budget.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/exchange/result_rows.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/layer/cpu/internal/prepared_experts.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/layer/cpu/internal/step_schedule.h"
#include "evenkeel/layer/internal/layer_backend.h"

namespace evenkeel::internal {

// Tracks the current phase of a rank, and adds the thread's CPU time to it.
class PhaseClock {
 public:
  // `on_phase`, if set, is called at the end of every phase.
  explicit PhaseClock(std::function<void(const TimedPhase&)> on_phase) : on_phase_(std::move(on_phase)) {}

  void start(bool backward) {
    statistics_ = {};
    statistics_.backward = backward;
    moment_ = {.backward = backward};
    wall_start_ = wall_since_ = wall_seconds();
    since_ = thread_cpu_seconds();
  }
  void enter(Phase phase) { enter(phase, moment_.chunk); }
  // Begins the next chunk of the pass with this phase.
  void enter_chunk(Phase phase) { enter(phase, statistics_.chunks++); }
  // Enters a phase that belongs to no chunk.
  void leave_chunk(Phase phase) { enter(phase, -1); }
  StepStatistics stop() {
    account();
    statistics_.wall_seconds = wall_seconds() - wall_start_;
    return statistics_;
  }
  StepStatistics& statistics() { return statistics_; }

 private:
  void enter(Phase phase, int chunk) {
    account();
    moment_.phase = phase;
    moment_.chunk = chunk;
  }
  void account() {
    const double now = thread_cpu_seconds();
    const double cpu_seconds = now - since_;
    statistics_.cpu_seconds[static_cast<std::size_t>(moment_.phase)] += cpu_seconds;
    since_ = now;
    if (!on_phase_) return;
    const double begin = std::exchange(wall_since_, wall_seconds());
    on_phase_({moment_, begin, wall_since_, cpu_seconds});
  }

  std::function<void(const TimedPhase&)> on_phase_;
  StepStatistics statistics_;
  StepMoment moment_;
  double since_ = 0;
  double wall_start_ = 0;
  double wall_since_ = 0;  // only updated if on_phase_ is set
};

class CpuLayer final : public LayerBackend {
 public:
  explicit CpuLayer(const LayerParts& layer);

  void set_weights(std::span<const ExpertWeights> weights) override { experts.set_natives(weights); }
  void set_planner(const PlannerOptions& options) override;
  StepState* take_state() override { return pool.take(); }
  void give_back(StepState* state) noexcept override { pool.give_back(static_cast<SavedStep*>(state)); }
  void forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) override;
  void backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) override;
  StepReport report(const StepState& state) override;
  const BitwiseReport& bitwise() const override { return bits; }
  std::int64_t least_budget() const override { return evenkeel::least_budget(budget); }

  // The address of a token's row.
  auto* row(const auto& of, std::int64_t token) const {
    return rows::at(of.data, token * parts.shape.expert.hidden, parts.shape.expert.type);
  }
  Recompute recompute() const { return parts.options.cpu().memory.recompute; }

  const LayerParts& parts;
  const std::shared_ptr<const ExpertFfn> ffn;
  std::unique_ptr<Planner> planner;
  const BitwiseReport bits;
  const std::unique_ptr<Communicator> weights_comm;
  PreparedExperts experts;
  PhaseClock clock;
  CpuStream stream;
  Exchange exchange;
  WeightTransfer transfer;
  const BudgetShape budget;
  StepSchedule schedule;
  // Scratch that each pass or chunk fills before it reads it; reused, so that no step allocates.
  std::vector<ExpertGroup> groups;  // for one call of the products
  ResultRows result_rows;
  std::vector<GradientParts> owned_gradients;  // [E]
  std::vector<std::uint8_t> split_experts;     // [E]
  Buffer choices;                              // choices of the states in flight, if the arena has a budget
  StepPool pool;

 private:
  void set_bytes_aside();
  void finish_step();
};

}  // namespace evenkeel::internal
