// TensorRT-LLM's files (docs/formats.md#tensorrt-llm): the load balancer's YAML, which names the experts of
// every slot by the model's layer numbers, and the statistics it records.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

void write_trtllm_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path);
// Needs options.num_ranks unless the file has an ep_size; takes options.layers, or all there are. Reads the
// YAML that TensorRT-LLM's own scripts write, and lists over several lines; not every YAML.
PlacementFile read_trtllm_placement(const ByteSource& source, const PlacementFormatOptions& options);

// Its ep_size, where it has one.
std::optional<int> trtllm_num_ranks(const ByteSource& source);

// Whether all arrays of a file are named as the statistics of a rank are.
bool is_trtllm_statistics(const ArrayFile& file);
// Counts by iteration and layer of one or several ranks, added up; an iteration is a step. `meta_info`, where
// there is one, says the number of experts. Throws ParseError: a layer or iteration is missing, a shape
// differs, a count is negative.
RoutingFile open_trtllm_statistics(const std::vector<ByteSource>& ranks, const ByteSource* meta_info);

}  // namespace evenkeel
