// Redundant experts in one pool: the ranks that share their experts, all ranks (flat) or those of one node.
//
// Method      counts that make the largest copy smallest (CopyCounts), then RankPacking.
// Bound       no rank is below the mean, nor below the smallest possible largest copy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/copy_counts.h"
#include "evenkeel/placement/internal/rank_packing.h"

namespace evenkeel {

struct Pool {
  std::span<const FixedLoad> loads;     // of its experts, [0, E)
  std::span<const std::int32_t> rooms;  // slots of its ranks; together at least E
  int num_slots = 0;                    // the sum of rooms
};

class PoolSolver {
 public:
  // Until no rank is above `target`, or as far as the search goes. Returns the heaviest rank's load.
  FixedLoad solve(const Pool& pool, FixedLoad target, bool distinct);
  // Of the pool last solved: no placement of its experts has a lighter heaviest rank (but for rounding).
  FixedLoad bound() const { return bound_; }
  // The expert in each slot, rank after rank.
  std::int32_t expert_in(std::size_t slot) const { return packing_.expert_in(slot); }
  std::span<const std::int32_t> counts() const { return counts_.counts(); }

 private:
  CopyCounts counts_;
  RankPacking packing_;
  FixedLoad bound_ = 0;
};

}  // namespace evenkeel
