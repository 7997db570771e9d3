#include "evenkeel/budget/chunk_estimate.h"

#include <algorithm>

namespace evenkeel {

// A chunk takes what an empty one does, and its share of what the whole step takes besides.
std::int64_t estimated_chunks(const ChunkShape& shape, const BlockLoads& loads, LoadBytes bytes,
                              std::span<const std::int64_t> limits, std::int64_t most) {
  const std::int64_t fixed = bytes(shape, ChunkLoad{});
  std::int64_t chunks = 1;
  for (RankId rank : indices<RankId>(loads.num_ranks())) {
    const std::int64_t available = limits[rank.offset()] - fixed;
    if (available <= 0) return most;
    const std::int64_t growing = bytes(shape, loads.load(rank, 0, loads.num_blocks())) - fixed;
    chunks = std::max(chunks, (growing + available - 1) / available);
  }
  return std::min(chunks, most);
}

}  // namespace evenkeel
