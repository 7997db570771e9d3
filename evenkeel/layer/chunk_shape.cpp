#include "evenkeel/layer/chunk_shape.h"

#include <algorithm>

#include "evenkeel/base/bytes.h"
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
  chunk.landing_bytes = elements.larger() * bytes_of(shape.expert.type);
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

}  // namespace evenkeel
