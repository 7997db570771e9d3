// The kind of a file, by its content alone: which reader it is for.
#pragma once

#include <optional>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

enum class Content {
  unknown,
  arrays,  // safetensors, npy or npz: what is in it decides
  loads,   // JSON with "loads" or "counts": a profile, or one step of one layer
  counts,  // JSON or a text table: counts by layer and expert
  count_lines,
  placement,  // our own
  sglang_placement,
  sglang_recording,
  vllm_placement,  // which may have statistics besides
  vllm_statistics,
  vllm_ascend_placement,
  trtllm_placement,
  megatron_trace
};

// Of the dictionary that SGLang's --init-expert-location loads, in JSON or in a file of torch.save.
inline constexpr const char* sglang_map_key = "physical_to_logical_map";

// Throws ParseError only if the file is empty, or a damaged zip archive.
Content detect_content(const ByteSource& source);

// The readers behind open_routing() and read_placement_as(), for whoever has looked already what a file is.

// None if the content is no placement.
std::optional<PlacementFormat> placement_format_of(Content content);

PlacementFile read_placement_known(PlacementFormat format, const ByteSource& source,
                                   const PlacementFormatOptions& options);
RoutingFile open_routing_known(Content content, const ByteSource& source, const RoutingOptions& options);

// Checks and layer numbers that are the same for files of every kind, the last step of reading one.
RoutingFile completed(RoutingFile routing, const RoutingOptions& options);

}  // namespace evenkeel::internal
