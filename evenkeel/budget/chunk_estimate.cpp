#include "evenkeel/budget/chunk_estimate.h"

#include <algorithm>

namespace evenkeel {

ChunkEstimate::ChunkEstimate(const PassBytes& bytes, const ChunkShape& shape, const BlockLoads& loads,
                             int chunks_in_flight)
    : bytes_(bytes), shape_(shape), loads_(loads), overlaps_(chunks_in_flight > 1 && bytes.overlapped) {
  for (Bytes* of : {&alone_, &overlapped_}) of->growing.reserve(static_cast<std::size_t>(shape.num_ranks));
}

void ChunkEstimate::read() {
  alone_.read(bytes_.alone, shape_, loads_);
  if (overlaps_) overlapped_.read(bytes_.overlapped, shape_, loads_);
}

// Two are in flight only where there are two.
std::int64_t ChunkEstimate::chunks(std::span<const std::int64_t> limits, std::int64_t most) const {
  std::int64_t alone = 1, overlapped = 1;
  for (std::size_t rank = 0; rank < limits.size(); ++rank) {
    alone = std::max(alone, alone_.parts(rank, limits[rank], most));
    if (overlaps_)
      overlapped = std::max(overlapped, overlapped_.parts(rank, bytes_.half_of(limits[rank], shape_), most));
  }
  return alone > 1 ? std::max(alone, overlapped) : 1;
}

void ChunkEstimate::Bytes::read(LoadBytes bytes, const ChunkShape& shape, const BlockLoads& loads) {
  fixed = bytes(shape, ChunkLoad{});
  growing.clear();
  for (RankId rank : indices<RankId>(loads.num_ranks()))
    growing.push_back(bytes(shape, loads.load(rank, 0, loads.num_blocks())) - fixed);
}

std::int64_t ChunkEstimate::Bytes::parts(std::size_t rank, std::int64_t limit, std::int64_t most) const {
  const std::int64_t available = limit - fixed;
  return available > 0 ? std::min((growing[rank] + available - 1) / available, most) : most;
}

}  // namespace evenkeel
