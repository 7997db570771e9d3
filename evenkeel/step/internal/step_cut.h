// Where a step's chunks end, given the bytes that each rank has for one.
//
// As the rule says (equal parts, or MemFine's tuning), or, where one of its parts does not fit
// and under `exact`, into chunks as long as they fit (chunk_planner.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/memory_options.h"

namespace evenkeel::internal {

class StepCut {
 public:
  // All must outlive this; `units` as for cut_into_chunks().
  StepCut(const ChunkRule& rule, const BlockLoads& loads, std::int64_t units);

  // The whole step within `limits`, in place of what `chunks` has. Where the rule is followed, lowers
  // `bytes`, which the limits view, to what its parts need, so that more can be kept. False if nothing fits.
  bool cut(const ChunkLimits& limits, std::vector<std::int64_t>& bytes, std::vector<Chunk>& chunks);

  // How many chunks the rule asks for, fit or not; 1 under `exact`. O(P).
  std::int64_t count_by_rule(const ChunkLimits& limits) const;

  // Of the blocks that a chunk touches; no less than the chunk's.
  ChunkLoad covering_load(RankId rank, const Chunk& chunk) const;

 private:
  bool cut_by_rule(const ChunkLimits& limits, std::vector<std::int64_t>& bytes, std::vector<Chunk>& chunks);

  const ChunkRule& rule_;
  const BlockLoads& loads_;
  std::int64_t units_;
  std::vector<std::int64_t> most_;  // by rank
};

}  // namespace evenkeel::internal
