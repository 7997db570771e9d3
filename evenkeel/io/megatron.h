// Megatron-LM's router traces (docs/formats.md#megatron-lm): JSON lines, one a step and layer, one file a
// rank.
#pragma once

#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

// Files of one or several ranks as one trace, which is held in memory. Tokens of the same rank, step and
// micro-batch are the same tokens in all layers; a layer that a rank does not have is -1 there. Layers of
// multi-token prediction are left out. A micro-batch is a step, of all ranks together. `num_experts` 0: the
// largest id plus one. Throws ParseError.
RoutingFile open_megatron_trace(const std::vector<ByteSource>& ranks, int num_experts = 0);

}  // namespace evenkeel
