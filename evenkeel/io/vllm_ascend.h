// vLLM-Ascend's static expert map (docs/formats.md#placements-of-other-systems): JSON with the experts of
// each device in each MoE layer; dense layers are not counted.
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel {

void write_vllm_ascend_placement(const Placement& placement, const std::string& path);
// Throws ParseError where layer_id, device_id or a count says other than the lists do, whose order is what
// vLLM-Ascend goes by. Ids that begin above 0 are the model's layer numbers.
Placement read_vllm_ascend_placement(const ByteSource& source, const PlacementFormatOptions& options);

}  // namespace evenkeel
