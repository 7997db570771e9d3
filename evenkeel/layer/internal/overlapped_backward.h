// Chunks of a backward pass with two of them in flight.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/layer/internal/experts_backward.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"

namespace evenkeel::internal {

// Collective. The chunks that were kept; borrows for `passes` while the first one's gradients travel.
void backward_kept_overlapped(LayerBody& layer, SavedStep& step, std::span<const Pass> passes,
                              const BackwardTensors& tensors);

// Collective. The tokens from `before` on, in the schedule's chunks; borrows, unless the pass has borrowed
// already, while the first chunk travels.
void backward_rest_overlapped(LayerBody& layer, SavedStep& step, std::int64_t before,
                              const BackwardTensors& tensors);

}  // namespace evenkeel::internal
