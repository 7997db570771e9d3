// Sizes of a chunk's tables.
#pragma once

#include <cstdint>

namespace evenkeel::cuda {

// Message entries per scan tile.
inline constexpr int kTile = 1024;

// The most pieces of all experts together: an expert has at most one piece more than it has segments.
constexpr std::int64_t most_pieces(std::int64_t segments, std::int64_t experts) {
  return segments + experts;
}

constexpr std::int64_t most_tiles(std::int64_t assignments) {
  return assignments / kTile + 1;
}

}  // namespace evenkeel::cuda
