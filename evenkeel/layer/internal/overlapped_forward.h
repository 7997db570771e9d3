// Chunks of a forward pass with two of them in flight.
#pragma once

#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

// Collective. Borrows, unless the pass has borrowed already, while the first chunk travels.
void forward_overlapped(LayerBody& layer, SavedStep& step, std::span<const Chunk> chunks, const TopK& top_k,
                        Rows output);

}  // namespace evenkeel::internal
