// A step kept whole for its backward pass, in one chunk: does it fit, and how much of it would be computed
// again?
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/foreign_bytes.h"
#include "evenkeel/budget/rank_memory.h"

namespace evenkeel {

class KeptWhole {
 public:
  // Of the plan that the other two are of when it is asked; all must outlive this.
  KeptWhole(const ChunkShape& shape, const BlockLoads& loads, const ForeignBytes& foreign);

  // The step as one chunk of `units`. Its `recomputed` is the largest share that a rank computes again; past
  // `most`, that of the first such rank; past 1, the step does not fit. O(P).
  Chunk chunk(std::span<const RankMemory> memories, std::int64_t units, double most);

 private:
  const ChunkLoad& load(std::size_t rank);
  bool fits_at_once(std::size_t rank, const RankMemory& memory);
  std::optional<double> recomputed_in_parts(std::size_t rank, const RankMemory& memory);
  bool fits_the_rest(std::span<const RankMemory> memories);
  std::int64_t bytes_to_keep(std::size_t rank, const RankMemory& memory);

  const ChunkShape& shape_;
  const BlockLoads& blocks_;
  const ForeignBytes& foreign_;
  std::vector<ChunkLoad> loads_;  // the whole step's, of the first ranks
};

}  // namespace evenkeel
