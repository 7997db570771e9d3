// The bytes that chunks take in one pass of a step.
#pragma once

#include <cstdint>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/chunk_planner.h"

namespace evenkeel {

// The bytes of one chunk alone, of each of two in flight, and of the workspace that these two share.
struct PassBytes {
  LoadBytes alone;
  LoadBytes overlapped;
  std::int64_t Workspaces::*shared;

  // Of a limit, what each of two in flight may take.
  std::int64_t half_of(std::int64_t limit, const ChunkShape& shape) const {
    return (limit - whole_lines(shape.workspace.*shared)) / 2;
  }
};

}  // namespace evenkeel
