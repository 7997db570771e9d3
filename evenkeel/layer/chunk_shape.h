// What the bytes of a layer's chunks depend on, as memory/ counts them.
#pragma once

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/memory/chunk_bytes.h"

namespace evenkeel {

// Of a layer of this shape, spread over so many ranks; `experts` are its products on this machine.
ChunkShape chunk_shape(const MoeShape& shape, int num_ranks, const ExpertFfn& experts, bool with_backward);

}  // namespace evenkeel
