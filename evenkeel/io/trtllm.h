// TensorRT-LLM's load balancer YAML (docs/formats.md#tensorrt-llm), which names the experts of every slot by
// the model's layer numbers.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel {

void write_trtllm_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path);
// Needs options.num_ranks unless the file has an ep_size; takes options.layers, or all there are. Reads the
// YAML that TensorRT-LLM's own scripts write, and lists over several lines; not every YAML.
PlacementFile read_trtllm_placement(const ByteSource& source, const PlacementFormatOptions& options);

// Its ep_size, where it has one.
std::optional<int> trtllm_num_ranks(const ByteSource& source);

}  // namespace evenkeel
