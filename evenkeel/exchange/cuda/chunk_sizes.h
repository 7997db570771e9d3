// Sizes of a chunk's tables that follow from how they are made.
#pragma once

#include <cstdint>

namespace evenkeel::cuda {

// Message entries that are scanned together.
inline constexpr int kTile = 1024;

// Places for pieces: an expert has one more than segments at most.
constexpr std::int64_t most_pieces(std::int64_t segments, std::int64_t experts) {
  return segments + experts;
}

constexpr std::int64_t most_tiles(std::int64_t assignments) {
  return assignments / kTile + 1;
}

}  // namespace evenkeel::cuda
