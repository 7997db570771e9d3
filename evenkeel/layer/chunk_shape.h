// The shapes from which budget/ computes the bytes of a layer's chunks and its least budget.
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

// The chunk shape of a layer on `num_ranks` ranks; `experts` computes its products on this machine.
ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward);

// The budget shape of the CPU layer that these arguments would make. Its least_budget() equals
// MoeLayer::least_budget() if all ranks compute products like this machine.
BudgetShape budget_shape(const MoeShape& shape, const LayerPlacement& placement, const ExpertFfn& experts,
                         const MoeOptions& options);

// The least bytes that a layer's arena on one device of the stage needs to run a model's training steps,
// whatever the routing (docs/budget.md). Each device brings its own tokens to a step. The bytes include the
// products' workspace, so this function builds the products for the shape. That takes up to about a second,
// or a few seconds for experts of half a billion weights. Returns nothing if the layer or this CPU does not
// support the type, if the stage has no experts, or for more tokens or states than a layer supports.
std::optional<std::int64_t> least_layer_budget(const MemoryModel& memory, int stage);

}  // namespace evenkeel
