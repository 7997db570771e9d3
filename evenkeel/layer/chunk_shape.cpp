#include "evenkeel/layer/chunk_shape.h"

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel {

static_assert(kCacheLine == Arena::kAlignment, "what the budget adds up is what the arena lends");

ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward) {
  const BorrowedElements elements = borrowed_elements(internal::part_elements(shape.expert));
  ChunkShape chunk;
  chunk.num_ranks = num_ranks;
  chunk.num_experts = shape.num_experts;
  chunk.top_k = shape.top_k;
  chunk.hidden = shape.expert.hidden;
  chunk.element_bytes = bytes_of(shape.expert.type);
  chunk.weight_bytes = elements.all() * bytes_of(shape.expert.type);
  chunk.row_outputs = shape.expert.gate_up_rows() + shape.expert.hidden;
  chunk.arrival_bytes = elements.larger() * bytes_of(shape.expert.type);
  chunk.gradient_bytes = elements.all() * std::int64_t{sizeof(float)};
  const auto prepared = [&](Pass pass) { return whole_lines(experts.prepared_bytes(pass)); };
  chunk.forward_weight_bytes = prepared(Pass::forward);
  chunk.workspace.forward = experts.least_workspace_bytes(Pass::forward);
  chunk.most_workspace.forward = experts.workspace_bytes(Pass::forward);
  chunk.with_backward = with_backward;
  if (!with_backward) return chunk;
  chunk.backward_weight_bytes = prepared(Pass::backward);
  chunk.recompute_weight_bytes = prepared(Pass::recompute);
  chunk.saved_bytes = experts.saved_bytes_per_position();
  chunk.saved_margin_bytes = experts.saved_margin_bytes();
  chunk.workspace.backward = experts.least_workspace_bytes(Pass::backward);
  chunk.workspace.recompute = experts.least_workspace_bytes(Pass::recompute);
  chunk.most_workspace.backward = experts.workspace_bytes(Pass::backward);
  chunk.most_workspace.recompute = experts.workspace_bytes(Pass::recompute);
  return chunk;
}

BudgetShape budget_shape(const MoeShape& shape, const LayerPlacement& placement, const ExpertFfn& experts,
                         const MoeOptions& options) {
  BudgetShape budget;
  budget.chunk = chunk_shape(shape, placement.num_ranks(), experts, options.with_backward);
  budget.max_tokens = options.max_tokens;
  budget.home_experts = placement.most_natives();
  budget.states_in_flight = options.states_in_flight;
  budget.recompute = options.cpu().memory.recompute;
  for (RankId rank : indices<RankId>(placement.num_ranks()))
    budget.copies = std::max<std::int64_t>(budget.copies, placement.num_copies(rank));
  return budget;
}

namespace {

std::int64_t divided(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / by;
}

ExpertShape expert_shape(const MemoryModel& memory) {
  const ModelDescription& model = memory.model();
  ExpertShape shape;
  shape.hidden = model.hidden;
  shape.intermediate = model.experts.intermediate;
  shape.biases = model.experts.biases;
  shape.type = memory.setup().bytes.activation == 2 ? DataType::bf16 : DataType::f32;
  return shape;
}

// The number of steps that wait for backward at once, over all layers of the stage's fullest piece. With full
// recomputation the only such step is the one that was just recomputed.
std::int64_t states_in_flight(const MemoryModel& memory, int stage) {
  if (memory.setup().full_recompute) return 1;
  return memory.micro_batches_in_flight(stage) * memory.piece_layers(stage, MemoryModel::Part::experts);
}

std::optional<BudgetShape> budget_shape(const MemoryModel& memory, int stage) {
  const MemorySetup& setup = memory.setup();
  const ModelDescription& model = memory.model();
  const ExpertShape expert = expert_shape(memory);
  const std::int64_t states = states_in_flight(memory, stage);
  const std::int64_t tokens =
      divided(setup.micro_batch * setup.sequence, setup.parallel.tensor * setup.parallel.context);
  // The layer supports no more assignments than this, and counts states in an int.
  constexpr std::int64_t kMostAssignments = std::int64_t{1} << 30, kMostStates = 1 << 20;
  if (states > kMostStates || tokens > kMostAssignments / model.experts.top_k / setup.parallel.expert)
    return std::nullopt;
  BudgetShape shape;
  shape.chunk = chunk_shape(
      {static_cast<int>(model.experts.count), static_cast<int>(model.experts.top_k), expert},
      static_cast<int>(setup.parallel.expert), *make_cpu_expert_ffn(expert, /*with_backward=*/true), true);
  shape.max_tokens = tokens;
  shape.home_experts = divided(model.experts.count, setup.parallel.expert);
  shape.states_in_flight = static_cast<int>(states);
  return shape;
}

}  // namespace

std::optional<std::int64_t> least_layer_budget(const MemoryModel& memory, int stage) {
  const std::int64_t bytes = memory.setup().bytes.activation;
  const RoutedExperts& experts = memory.model().experts;
  // The layer does not support tensor-parallel experts.
  if (memory.setup().parallel.expert_tensor > 1) return std::nullopt;
  if (!memory.has_experts(stage) || (bytes != 2 && bytes != 4) || !experts.gated || experts.latent > 0)
    return std::nullopt;
  try {
    const auto shape = budget_shape(memory, stage);
    return shape ? std::optional(least_budget(*shape)) : std::nullopt;
  } catch (const Unsupported&) {
    return std::nullopt;  // this CPU does not support the type
  }
}

}  // namespace evenkeel
