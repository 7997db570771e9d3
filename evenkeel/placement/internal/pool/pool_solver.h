// Places redundant experts in one pool: ranks that share their experts, either all ranks (flat) or those of
// one node.
//
// Method      counts that make the largest copy smallest (CopyCounts), then RankPacking: single swaps, then
//             swaps of pairs while they pay and a work limit lasts. A thorough search also tries other
//             counts, and everything if there are few slots (search_small_pool()).
// Bound       no placement is below the mean, below the smallest possible largest copy, or, if ranks have few
//             slots, below slot_bound(). A complete search_small_pool() finds the optimum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/pool.h"
#include "evenkeel/placement/internal/pool/rank_packing.h"

namespace evenkeel::internal {

// Pools with fewer slots get a thorough search. Their ranks hold so little that the plain search can be off
// by percents, and a thorough one takes microseconds.
constexpr int kFewSlots = 40;

class PoolSolver {
 public:
  struct Search {
    bool repeats = false;
    bool thorough = false;
    const Deadline* deadline = nullptr;
  };

  // Searches until no rank is above `target`, or the search ends. Returns the heaviest rank's load. A rank
  // holds an expert at most once if the pool has as many experts as a rank has slots. With `repeats` it may
  // hold one twice where that is lighter.
  FixedLoad solve(const Pool& pool, FixedLoad target, Search search) {
    pool_ = pool;
    target_ = target;
    search_ = search;
    const auto num_ranks = static_cast<int>(pool.capacities.size());
    const bool distinct = std::ranges::max(pool.capacities) <= std::ssize(pool.loads);
    const FixedLoad total = std::reduce(pool.loads.begin(), pool.loads.end(), FixedLoad{0});
    fill(distinct);
    bound_ = std::max(total / num_ranks, counts_.largest_copy());
    const bool plain = !packing_.skipped_rank() && std::ranges::max(counts_.counts()) < num_ranks;
    heaviest_ = std::numeric_limits<FixedLoad>::max();
    keep_if_lighter(swap_copies());
    if (search.deadline->passed()) return heaviest_;
    const FixedLoad near = within(kPairToleranceBits);
    if (heaviest_ > within(kBoundToleranceBits)) bound_ = slot_bound(pool, bound_, heaviest_);
    if (search.thorough && heaviest_ > near && fits_small_pool(pool)) {
      bool whole = search_whole(distinct);
      if (search.repeats && distinct) whole = search_whole(false);
      if (whole) {
        bound_ = std::max(bound_, heaviest_);
        return heaviest_;
      }
    }
    if (search.thorough && heaviest_ > within(kVaryToleranceBits)) vary_counts(distinct);
    if (search.repeats && distinct && !plain && heaviest_ > std::max(target, bound_)) {
      // Other tools use plain largest first, so never be worse than that.
      fill(/*distinct=*/false);
      if (packing_.heaviest_load() < heaviest_) keep_if_lighter(swap_copies());
    }
    return heaviest_;
  }
  // For the pool last solved: no placement of its experts has a lighter heaviest rank (except for rounding).
  FixedLoad bound() const { return bound_; }
  // The expert in each slot, rank after rank.
  std::span<const std::int32_t> expert_in() const { return expert_in_; }

 private:
  // Tolerances, in bits. If the heaviest rank is this close to the bound, these are not worth their time:
  // swaps of one copy, swaps of two (whose work is limited), other counts. The last one: a bound this close
  // to the result is not improved.
  static constexpr int kToleranceBits = 15;
  static constexpr int kPairToleranceBits = 11;
  static constexpr int kVaryToleranceBits = 9;
  static constexpr int kBoundToleranceBits = 10;
  static constexpr std::int64_t kMostPairs = 5000;
  static constexpr int kMostVariedSlots = 4000;  // over all tries

  std::int32_t most_copies(bool distinct) const {
    return distinct ? static_cast<std::int32_t>(pool_.capacities.size())
                    : std::numeric_limits<std::int32_t>::max();
  }
  // A load that is good enough: the target, or 1 part in 2^bits above the bound if that is larger.
  FixedLoad within(int bits) const { return std::max(target_, bound_ + (bound_ >> bits)); }

  void fill(bool distinct) {
    counts_.choose(pool_.loads, pool_.num_slots, most_copies(distinct));
    packing_.fill(counts_.item_loads(), counts_.item_experts(), pool_.capacities, distinct);
  }

  FixedLoad swap_copies() {
    const FixedLoad close = within(kToleranceBits);
    const FixedLoad near = within(kPairToleranceBits);
    FixedLoad heaviest = packing_.swap_copies(close, search_.deadline);
    // Limit pair swaps so that they look at about kMostPairs pairs of copies in all.
    const auto ranks = static_cast<std::int64_t>(pool_.capacities.size());
    const std::int64_t capacity = pool_.num_slots / ranks + 1;
    std::int64_t rounds = kMostPairs / std::max<std::int64_t>(ranks * capacity * (capacity - 1) / 2, 1);
    for (; heaviest > near && rounds > 0 && !search_.deadline->passed() && packing_.swap_pairs(near);
         --rounds)
      heaviest = packing_.swap_copies(close, search_.deadline);
    return heaviest;
  }

  // Moves a copy from one expert to another, as long as that helps. Counts that make the largest copy
  // smallest need not pack best, and where loads are alike many counts are equally good.
  void vary_counts(bool distinct) {
    varied_.assign(counts_.counts().begin(), counts_.counts().end());
    int tries = kMostVariedSlots / pool_.num_slots;
    for (std::size_t giver = 0; giver < varied_.size(); ++giver)
      for (std::size_t taker = 0; taker < varied_.size(); ++taker) {
        if (tries <= 0 || heaviest_ <= within(kVaryToleranceBits)) return;
        if (giver == taker || varied_[giver] == 1 || varied_[taker] == most_copies(distinct)) continue;
        if (copy_load(pool_.loads[giver], varied_[giver] - 1) >= heaviest_) break;
        --tries;
        --varied_[giver];
        ++varied_[taker];
        counts_.list_items(pool_.loads, varied_);
        packing_.fill(counts_.item_loads(), counts_.item_experts(), pool_.capacities, distinct);
        if (keep_if_lighter(swap_copies())) continue;
        ++varied_[giver];
        --varied_[taker];
      }
  }

  bool search_whole(bool distinct) {
    SmallPoolAnswer answer = search_small_pool(pool_, heaviest_, distinct);
    heaviest_ = answer.heaviest;
    if (!answer.expert_in.empty()) expert_in_ = std::move(answer.expert_in);
    return answer.finished;
  }

  bool keep_if_lighter(FixedLoad load) {
    if (load >= heaviest_) return false;
    heaviest_ = load;
    packing_.list_experts(expert_in_);
    return true;
  }

  Pool pool_;
  FixedLoad target_ = 0;
  Search search_;
  CopyCounts counts_;
  RankPacking packing_;
  FixedLoad bound_ = 0;
  FixedLoad heaviest_ = 0;            // load of the heaviest rank in the best placement so far
  std::vector<std::int32_t> varied_;  // [E] copies of each expert
  std::vector<std::int32_t> expert_in_;
};

}  // namespace evenkeel::internal
