// The kind of a file, by its content alone: which reader it is for.
#pragma once

#include <optional>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel::internal {

enum class Content {
  unknown,
  folder,
  arrays,       // safetensors, npy or npz: what is in it decides
  json_counts,  // a profile, counts, or the loads of one step
  count_lines,
  table,
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

// None if the content is no placement.
std::optional<PlacementFormat> placement_format_of(Content content);

// The reader behind read_placement_as(), for whoever has looked already what a file is.
PlacementFile read_placement_known(PlacementFormat format, const ByteSource& source,
                                   const PlacementFormatOptions& options);

}  // namespace evenkeel::internal
