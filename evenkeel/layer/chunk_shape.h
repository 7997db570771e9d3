// The shapes that the bytes of a layer's chunks, and its least budget, depend on, as budget/ counts them.
#pragma once

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/least_budget.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// Of a layer of this shape, spread over so many ranks; `experts` are its products on this machine.
ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward);

// Of the layer that these would make on every rank's CPU. least_budget() of it is MoeLayer::least_budget()
// where all ranks have this machine's products.
BudgetShape budget_shape(const MoeShape& shape, const LayerPlacement& placement, const ExpertFfn& experts,
                         const MoeOptions& options);

}  // namespace evenkeel
