// The shapes that the bytes of a layer's chunks, and its least budget, depend on, as budget/ counts them.
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/least_budget.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

// Of a layer of this shape, spread over so many ranks; `experts` are its products on this machine.
ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward);

// Of the layer that these would make on every rank's CPU. least_budget() of it is MoeLayer::least_budget()
// where all ranks have this machine's products.
BudgetShape budget_shape(const MoeShape& shape, const LayerPlacement& placement, const ExpertFfn& experts,
                         const MoeOptions& options);

// The bytes that the layer's arena needs at least to run a model's training steps, whatever the routing
// (docs/budget.md): on one device of the stage, for the tokens that it brings to a step. The workspace of the
// products is a part of it, so they are made for the shape, which takes up to about a second, and a few for
// experts of half a billion weights. Nothing where the layer or this CPU cannot multiply the type, where the
// stage has no experts, or for more tokens or states than a layer is made for.
std::optional<std::int64_t> least_layer_budget(const MemoryModel& memory, int stage);

}  // namespace evenkeel
