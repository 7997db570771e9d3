// The part of a layer that carries out its steps on the CPU. Its passes are in forward_pass.cpp and
// backward_pass.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
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
#include "evenkeel/layer/cpu/internal/phase_clock.h"
#include "evenkeel/layer/cpu/internal/prepared_experts.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/layer/cpu/internal/step_schedule.h"
#include "evenkeel/layer/internal/layer_backend.h"
#include "evenkeel/layer/internal/layer_parts.h"

namespace evenkeel::internal {

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

  // Where a token's row begins.
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
  // What passes and their chunks fill before they read it; reused, so that no step allocates.
  std::vector<ExpertGroup> groups;  // of one call of the products
  ResultRows result_rows;
  std::vector<GradientParts> owned_gradients;  // [E]
  std::vector<std::uint8_t> split_experts;     // [E]
  Buffer choices;                              // of states in flight, where the arena has a budget
  StepPool pool;

 private:
  void set_bytes_aside();
  void finish_step();
};

}  // namespace evenkeel::internal
