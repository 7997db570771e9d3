// vLLM's expert map (docs/formats.md#vllm): one line of JSON, an `eplb_initial_mapping` record. vLLM counts
// MoE layers only.
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel {

void write_vllm_placement(const Placement& placement, const std::string& path);
// Needs options.num_ranks. Throws ParseError where two records say unlike placements.
Placement read_vllm_placement(const ByteSource& source, const PlacementFormatOptions& options);

}  // namespace evenkeel
