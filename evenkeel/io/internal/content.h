// The kind of a file, by its content alone: which reader it is for.
#pragma once

#include <memory>

#include "evenkeel/io/byte_source.h"

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

// Throws ParseError only if the file is empty, or a damaged zip archive.
Content detect_content(const std::shared_ptr<const ByteSource>& source);

}  // namespace evenkeel::internal
