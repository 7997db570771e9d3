// The parts that a layer is made of. Its passes are forward_pass.h and backward_pass.h.
#pragma once

#include <cstdint>
#include <functional>
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
#include "evenkeel/layer/internal/borrowed_experts.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/layer/internal/step_schedule.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

struct LayerBody {
  // As MoeLayer's.
  LayerBody(Communicator& communicator, Arena& memory, const MoeShape& moe, LayerPlacement homes,
            MoeOptions options);

  // The experts at home on this rank, ascending.
  std::span<const ExpertId> natives_here() const { return placement.natives(comm.rank()); }
  // Where a token's row begins.
  const void* row(ConstRows rows, std::int64_t token) const {
    return rows::at(rows.data, token * shape.expert.hidden, shape.expert.type);
  }
  void* row(Rows rows, std::int64_t token) const {
    return rows::at(rows.data, token * shape.expert.hidden, shape.expert.type);
  }
  // Throws InvalidArgument for a view of anything but [tokens, hidden] of the layer's type.
  void require_rows(const char* name, ConstRows rows, std::int64_t tokens) const;

  // The numbers that the bytes of the present pass depend on.
  ChunkShape chunk_shape() const {
    ChunkShape chunk = budget.chunk;
    chunk.workspace = workspace;
    return chunk;
  }

  // Collective. A pass's borrowing: the weights that the plan says, in backward memory for their gradients
  // too, and at the end all of it back, the gradients to their owners.
  void borrow_for_forward(const StepPlan& plan);
  void borrow_for_backward(const StepPlan& plan, std::span<const Pass> passes);
  void give_back_in_forward();
  void give_back_in_backward();
  // Ends a pass.
  void finish_step();

  Communicator& comm;
  Arena& arena;
  const MoeShape shape;
  const LayerPlacement placement;
  const std::int64_t max_tokens;
  const bool with_backward;
  const std::function<void(const StepStatistics&)> on_step;
  const std::shared_ptr<const ExpertFfn> ffn;
  std::unique_ptr<Planner> planner;
  const BitwiseReport bitwise;
  const std::unique_ptr<Communicator> weights_comm;
  NativeExperts natives;
  BorrowedExperts borrowed;
  bool borrowing = false;  // for the present pass
  ExpertGroups groups;
  PhaseClock clock;
  std::vector<GradientParts> owned_gradients;  // by expert, of the present pass
  std::vector<std::uint8_t> split_experts;     // by expert, of the present step's plan
  ResultRows result_rows;
  CpuStream stream;
  Exchange exchange;
  WeightTransfer transfer;
  const BudgetShape budget;
  const Recompute recompute;
  StepSchedule schedule;
  Workspaces workspace;  // of the present pass
  Buffer choices;        // of states in flight, where the arena has a budget
  StepPool pool;

 private:
  void set_bytes_aside();
};

std::unique_ptr<Planner> warm_planner(const PlannerOptions& options, const LayerPlacement& placement);

}  // namespace evenkeel::internal
