// About how many chunks a step would be cut into, before any boundary is looked at: as if every chunk had the
// same share of each rank's load.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/pass_bytes.h"

namespace evenkeel {

class ChunkEstimate {
 public:
  // The shape and the loads must outlive this.
  ChunkEstimate(const PassBytes& bytes, const ChunkShape& shape, const BlockLoads& loads,
                int chunks_in_flight);

  // Of the plan that the loads are of now. O(P).
  void read();
  // Where each rank has so many bytes; no more than `most`. O(P).
  std::int64_t chunks(std::span<const std::int64_t> limits, std::int64_t most) const;

 private:
  // Bytes of any chunk, and what the whole step as one takes besides, by rank.
  struct Bytes {
    std::int64_t fixed = 0;
    std::vector<std::int64_t> growing;

    void read(LoadBytes bytes, const ChunkShape& shape, const BlockLoads& loads);
    std::int64_t parts(std::size_t rank, std::int64_t limit, std::int64_t most) const;
  };

  const PassBytes bytes_;
  const ChunkShape& shape_;
  const BlockLoads& loads_;
  const bool overlaps_;
  Bytes alone_, overlapped_;
};

}  // namespace evenkeel
