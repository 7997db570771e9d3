// Where a step's chunks end, given the bytes that each rank has for one.
//
// As the rule of the options says (equal parts, or MemFine's tuning), or, where one of its parts does not fit
// and under `exact`, into chunks as long as they fit (chunk_planner.h). With two chunks in flight each has
// half of the available memory, but the last one, if it is alone, all of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/budget/pass_bytes.h"
#include "evenkeel/budget/step_cost.h"

namespace evenkeel {

// How fast chunks must be, in the pass of `seconds`, to be worth cutting on.
struct TimeLimit {
  const StepSeconds& seconds;
  double less_than;  // infinity: any
};

class StepCut {
 public:
  // All must outlive this; `units` as for cut_into_chunks().
  StepCut(const ChunkShape& shape, const MemoryOptions& options, const BlockLoads& loads, std::int64_t units);

  // The whole step, in place of what `chunks` has. Where the rule is followed, lowers `limits` (by rank) to
  // what its parts need, so that more can be kept. False if nothing fits, or if the chunks are too slow
  // whatever is kept of them; lower limits make no fewer.
  bool cut(const PassBytes& bytes, std::vector<std::int64_t>& limits, const TimeLimit& time,
           std::vector<Chunk>& chunks);
  // The blocks from `begin` on, behind the chunks that there are, each as long as it fits.
  bool cut_exactly(const PassBytes& bytes, std::span<const std::int64_t> limits, int begin,
                   const TimeLimit& time, std::vector<Chunk>& chunks);

  // The whole step, in place of what `chunks` has, where only the tokens of the rank with the most are known:
  // equal chunks that fit wherever such a plan sends them. False if not even a token a rank fits.
  bool cut_for_any_routing(const PassBytes& bytes, const PlanExperts& experts,
                           std::span<const std::int64_t> limits, std::int64_t tokens,
                           std::vector<Chunk>& chunks);

  // How many chunks the rule asks for, fit or not; 1 under `exact`. O(P).
  std::int64_t count_by_rule(const PassBytes& bytes, std::span<const std::int64_t> limits) const;

  // Of the blocks that a chunk touches; no less than the chunk's.
  ChunkLoad covering_load(RankId rank, const Chunk& chunk) const;

 private:
  bool cut_while_faster(LoadBytes bytes, std::span<const std::int64_t> limits, int begin,
                        const TimeLimit& time, std::vector<Chunk>& chunks) const;
  bool cut_by_rule(const PassBytes& bytes, std::vector<std::int64_t>& limits, std::vector<Chunk>& chunks);
  std::span<const std::int64_t> halves_of(const PassBytes& bytes, std::span<const std::int64_t> limits);
  void append_equal(std::int64_t count, std::vector<Chunk>& chunks) const;

  const ChunkShape& shape_;
  const MemoryOptions& options_;
  const BlockLoads& loads_;
  std::int64_t units_;
  std::vector<std::int64_t> halves_, most_;  // by rank
};

}  // namespace evenkeel
