#include "evenkeel/budget/chunk_estimate.h"

#include <algorithm>

namespace evenkeel {

// A chunk takes what an empty one does, and its share of what the whole step takes besides.
std::int64_t estimated_chunks(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most) {
  std::int64_t chunks = 1;
  for (RankId rank : indices<RankId>(loads.num_ranks())) {
    const std::int64_t fixed = limits.of(rank, {});
    const std::int64_t available = limits.limit(rank) - fixed;
    if (available <= 0) return most;
    const std::int64_t growing = limits.of(rank, loads.load(rank, 0, loads.num_blocks())) - fixed;
    chunks = std::max(chunks, (growing + available - 1) / available);
  }
  return std::min(chunks, most);
}

}  // namespace evenkeel
