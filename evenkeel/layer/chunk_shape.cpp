#include "evenkeel/layer/chunk_shape.h"

#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/layer/internal/native_experts.h"

namespace evenkeel {

ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward) {
  const std::int64_t elements = borrowed_elements(internal::part_elements(shape.expert));
  ChunkShape chunk;
  chunk.num_ranks = num_ranks;
  chunk.num_experts = shape.num_experts;
  chunk.top_k = shape.top_k;
  chunk.hidden = shape.expert.hidden;
  chunk.element_bytes = bytes_of(shape.expert.type);
  chunk.weight_bytes = elements * bytes_of(shape.expert.type);
  chunk.gradient_bytes = elements * std::int64_t{sizeof(float)};
  chunk.forward_workspace_bytes = experts.workspace_bytes(Pass::forward);
  chunk.with_backward = with_backward;
  if (!with_backward) return chunk;
  chunk.saved_bytes = experts.saved_bytes_per_position();
  chunk.backward_workspace_bytes = experts.workspace_bytes(Pass::backward);
  chunk.recompute_workspace_bytes = experts.workspace_bytes(Pass::recompute);
  return chunk;
}

}  // namespace evenkeel
