// The bytes that a chunk asks of the arena, and whether the arena has them. budget/chunk_bytes.h says what is
// held when.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// Of a chunk that was kept in forward, the positions to save the activations of: as many as leave the forward
// pass and the parts of the backward pass their memory. After open_results().
SavedPositions positions_to_save(const LayerBody& layer, const Dispatched& dispatched, const Chunk& chunk,
                                 const StepPlan& plan);

// Whether the backward pass of the chunks that were kept fits, beside what other steps hold now.
bool kept_fits(const LayerBody& layer, const SavedStep& step);

// Bytes that borrowing for these passes of backward takes.
std::int64_t borrowing_bytes(const LayerBody& layer, const StepPlan& plan, std::span<const Pass> passes);

// The passes that weights are borrowed for where something is computed again.
std::span<const Pass> again_passes(const LayerBody& layer);

}  // namespace evenkeel::internal
