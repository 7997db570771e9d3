// Redundant experts in one pool: the ranks that share their experts, all ranks (flat) or those of one node.
//
// Method      counts that make the largest copy smallest (CopyCounts), then RankPacking: single exchanges,
//             then pairs while they pay and a limit of work lasts. A thorough search also tries other counts,
//             and everything where slots are a handful (SmallPool).
// Bound       no rank is below the mean, nor below the smallest possible largest copy, nor, where ranks have
//             few slots, below what SlotBound finds. What SmallPool finds is the optimum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/rank_packing.h"
#include "evenkeel/placement/internal/pool/slot_bound.h"
#include "evenkeel/placement/internal/pool/small_pool.h"

namespace evenkeel {

class PoolSolver {
 public:
  // Fewer slots are worth a thorough search: their ranks hold so little that the plain way can be percents
  // off, and it takes microseconds.
  static constexpr int kFewSlots = 40;

  struct Search {
    bool repeats = false;
    bool thorough = false;
    const internal::Deadline* deadline = nullptr;  // none: as far as the search goes

    bool must_end() const { return deadline != nullptr && deadline->passed(); }
  };

  // Until no rank is above `target`, or as far as the search goes. Returns the heaviest rank's load. An
  // expert is on a rank once only, if the pool has as many experts as a rank has slots; with `repeats`, twice
  // where that is lighter than what was found.
  FixedLoad solve(const Pool& pool, FixedLoad target, Search search);
  // Of the pool last solved: no placement of its experts has a lighter heaviest rank (but for rounding).
  FixedLoad bound() const { return bound_; }
  // The expert in each slot, rank after rank.
  std::span<const std::int32_t> expert_in() const { return expert_in_; }

 private:
  void fill(const Pool& pool, int most_copies, bool distinct);
  FixedLoad exchange(const Pool& pool, FixedLoad target, Search search);
  FixedLoad vary_counts(const Pool& pool, FixedLoad target, FixedLoad heaviest, bool distinct, Search search);
  bool search_whole(const Pool& pool, FixedLoad& heaviest, bool distinct);
  void keep();

  CopyCounts counts_;
  RankPacking packing_;
  SmallPool small_;
  SlotBound slot_bound_;
  FixedLoad bound_ = 0;
  std::vector<std::int32_t> varied_;  // [E] copies of each expert
  std::vector<std::int32_t> expert_in_;
};

}  // namespace evenkeel
