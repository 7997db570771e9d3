// TensorRT-LLM's files (docs/formats.md#tensorrt-llm): the load balancer's YAML, which names the experts of
// every slot by the model's layer numbers, and the statistics it records.
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel {

void write_trtllm_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path);
// Needs options.num_ranks; takes options.layers, or all there are. Reads the YAML that TensorRT-LLM's own
// scripts write, and lists over several lines; not every YAML.
Placement read_trtllm_placement(const ByteSource& source, const PlacementFormatOptions& options);

}  // namespace evenkeel
