// Redundant experts in one pool: the ranks that share their experts, all ranks (flat) or those of one node.
//
// Method      counts that make the largest copy smallest (CopyCounts), then RankPacking: single exchanges,
//             then pairs while they pay and a limit of work lasts. A thorough search also tries other counts,
//             and everything where slots are a handful (search_small_pool()).
// Bound       no rank is below the mean, nor below the smallest possible largest copy, nor, where ranks have
//             few slots, below slot_bound(). What search_small_pool() finds is the optimum.
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

// Fewer slots are worth a thorough search: their ranks hold so little that the plain way can be percents
// off, and it takes microseconds.
constexpr int kFewSlots = 40;

class PoolSolver {
 public:
  struct Search {
    bool repeats = false;
    bool thorough = false;
    const Deadline* deadline = nullptr;
  };

  // Until no rank is above `target`, or as far as the search goes. Returns the heaviest rank's load. An
  // expert is on a rank once only, if the pool has as many experts as a rank has slots; with `repeats`, twice
  // where that is lighter than what was found.
  FixedLoad solve(const Pool& pool, FixedLoad target, Search search) {
    pool_ = pool;
    target_ = target;
    search_ = search;
    const auto num_ranks = static_cast<int>(pool.capacities.size());
    const bool distinct = std::ranges::max(pool.capacities) <= std::ssize(pool.loads);
    const FixedLoad total = std::reduce(pool.loads.begin(), pool.loads.end(), FixedLoad{0});
    fill(distinct);
    bound_ = std::max(total / num_ranks, counts_.largest_copy());
    const bool plain = !packing_.stepped_aside() && std::ranges::max(counts_.counts()) < num_ranks;
    heaviest_ = std::numeric_limits<FixedLoad>::max();
    keep_if_lighter(exchange());
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
      // Plain largest first, which others do: no worse than that.
      fill(/*distinct=*/false);
      if (packing_.heaviest_load() < heaviest_) keep_if_lighter(exchange());
    }
    return heaviest_;
  }
  // Of the pool last solved: no placement of its experts has a lighter heaviest rank (but for rounding).
  FixedLoad bound() const { return bound_; }
  // The expert in each slot, rank after rank.
  std::span<const std::int32_t> expert_in() const { return expert_in_; }

 private:
  // A rank this little above the bound is not worth another exchange of one copy; nor one of two, whose work
  // is limited; nor other counts; nor is a bound this little below what was found worth making better.
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
  // Good enough: the target, or 1 part in 2^bits above the bound.
  FixedLoad within(int bits) const { return std::max(target_, bound_ + (bound_ >> bits)); }

  void fill(bool distinct) {
    counts_.choose(pool_.loads, pool_.num_slots, most_copies(distinct));
    packing_.fill(counts_.item_loads(), counts_.item_experts(), pool_.capacities, distinct);
  }

  FixedLoad exchange() {
    const FixedLoad close = within(kToleranceBits);
    const FixedLoad near = within(kPairToleranceBits);
    FixedLoad heaviest = packing_.exchange(close, search_.deadline);
    // So many exchanges of pairs as look at that many pairs of copies.
    const auto ranks = static_cast<std::int64_t>(pool_.capacities.size());
    const std::int64_t capacity = pool_.num_slots / ranks + 1;
    std::int64_t rounds = kMostPairs / std::max<std::int64_t>(ranks * capacity * (capacity - 1) / 2, 1);
    for (; heaviest > near && rounds > 0 && !search_.deadline->passed() && packing_.exchange_pair(near);
         --rounds)
      heaviest = packing_.exchange(close, search_.deadline);
    return heaviest;
  }

  // Takes a copy from one expert and gives it to another, as long as that helps: counts that make the largest
  // copy smallest need not be those that pack best, and equally good ones are many where loads are alike.
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
        if (keep_if_lighter(exchange())) continue;
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
  FixedLoad heaviest_ = 0;            // of the best so far
  std::vector<std::int32_t> varied_;  // [E] copies of each expert
  std::vector<std::int32_t> expert_in_;
};

}  // namespace evenkeel::internal
