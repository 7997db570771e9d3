// The kind of a file, by its content only; it decides which reader to use.
#pragma once

#include <optional>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel::internal {

enum class Content {
  unknown,
  folder,
  arrays,       // safetensors, npy or npz; the arrays in it decide
  json_counts,  // a profile, counts, or the loads of one step
  count_lines,
  table,
  placement,  // our own
  sglang_placement,
  sglang_recording,
  vllm_placement,  // may also contain statistics
  vllm_statistics,
  vllm_ascend_placement,
  trtllm_placement,
  megatron_trace
};

// Key in the dictionary that SGLang's --init-expert-location loads, from JSON or a file of torch.save.
inline constexpr const char* sglang_map_key = "physical_to_logical_map";

// Throws ParseError only if the file is empty, or a damaged zip archive.
Content detect_content(const ByteSource& source);

// nullopt if the content is not a placement.
std::optional<PlacementFormat> placement_format_of(Content content);

// The same as read_placement_as() for a file whose format is already known.
PlacementFile read_placement_known(PlacementFormat format, const ByteSource& source,
                                   const PlacementFormatOptions& options);

}  // namespace evenkeel::internal
