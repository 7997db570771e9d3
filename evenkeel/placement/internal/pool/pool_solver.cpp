#include "evenkeel/placement/internal/pool/pool_solver.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel {

namespace {

// A rank this little above the bound is not worth another exchange of one copy: 1 part in 2^15; nor, 1 part
// in 2^11, one of two, whose work is limited.
constexpr int kToleranceBits = 15;
constexpr int kPairToleranceBits = 11;
constexpr std::int64_t kMostPairs = 5000;
// Other counts are tried where ranks are above the bound by more than 1 part in 2^9.
constexpr int kVaryToleranceBits = 9;
constexpr int kMostVariedSlots = 4000;  // over all tries
// A bound this little below what was found is not worth making better: 1 part in 2^10.
constexpr int kBoundToleranceBits = 10;

// The number of pairs of copies that one exchange of pairs looks at.
std::int64_t pairs_of_ranks(const Pool& pool) {
  const auto ranks = static_cast<std::int64_t>(pool.capacities.size());
  const std::int64_t capacity = pool.num_slots / ranks + 1;
  return std::max<std::int64_t>(ranks * capacity * (capacity - 1) / 2, 1);
}

}  // namespace

void PoolSolver::fill(const Pool& pool, int most_copies, bool distinct) {
  counts_.choose(pool.loads, pool.num_slots, most_copies);
  packing_.fill(counts_.item_loads(), counts_.item_experts(), pool.capacities, distinct);
}

FixedLoad PoolSolver::exchange(const Pool& pool, FixedLoad target, Search search) {
  const FixedLoad close = std::max(target, bound_ + (bound_ >> kToleranceBits));
  const FixedLoad near = std::max(target, bound_ + (bound_ >> kPairToleranceBits));
  FixedLoad heaviest = packing_.exchange(close, search.deadline);
  std::int64_t rounds = kMostPairs / pairs_of_ranks(pool);
  for (; heaviest > near && rounds > 0 && !search.must_end() && packing_.exchange_pair(near); --rounds)
    heaviest = packing_.exchange(close, search.deadline);
  return heaviest;
}

FixedLoad PoolSolver::solve(const Pool& pool, FixedLoad target, Search search) {
  const bool repeats = search.repeats;
  const auto num_ranks = static_cast<int>(pool.capacities.size());
  const bool distinct = std::ranges::max(pool.capacities) <= static_cast<std::int32_t>(pool.loads.size());
  constexpr int any = std::numeric_limits<std::int32_t>::max();
  const FixedLoad total = std::reduce(pool.loads.begin(), pool.loads.end(), FixedLoad{0});
  fill(pool, distinct ? num_ranks : any, distinct);
  bound_ = std::max(total / num_ranks, counts_.largest_copy());
  const bool plain = !packing_.stepped_aside() && std::ranges::max(counts_.counts()) < num_ranks;
  FixedLoad heaviest = exchange(pool, target, search);
  keep();
  if (search.must_end()) return heaviest;
  const FixedLoad near = std::max(target, bound_ + (bound_ >> kPairToleranceBits));
  if (heaviest > std::max(target, bound_ + (bound_ >> kBoundToleranceBits)))
    bound_ = slot_bound_.find(pool, bound_, heaviest);
  if (search.thorough && heaviest > near && SmallPool::fits(pool)) {
    bool whole = search_whole(pool, heaviest, distinct);
    if (repeats && distinct) whole = search_whole(pool, heaviest, false);
    if (whole) {
      bound_ = std::max(bound_, heaviest);
      return heaviest;
    }
  }
  if (search.thorough && heaviest > std::max(target, bound_ + (bound_ >> kVaryToleranceBits)))
    heaviest = vary_counts(pool, target, heaviest, distinct, search);
  if (repeats && distinct && !plain && heaviest > std::max(target, bound_)) {
    // Plain largest first, which others do: no worse than that.
    fill(pool, any, false);
    if (packing_.heaviest_load() < heaviest) {
      heaviest = exchange(pool, target, search);
      keep();
    }
  }
  return heaviest;
}

// Takes a copy from one expert and gives it to another, as long as that helps: counts that make the largest
// copy smallest need not be those that pack best, and equally good ones are many where loads are alike.
FixedLoad PoolSolver::vary_counts(const Pool& pool, FixedLoad target, FixedLoad heaviest, bool distinct,
                                  Search search) {
  const auto most_copies =
      distinct ? static_cast<std::int32_t>(pool.capacities.size()) : std::numeric_limits<std::int32_t>::max();
  varied_.assign(counts_.counts().begin(), counts_.counts().end());
  int tries = kMostVariedSlots / pool.num_slots;
  const auto enough = [&] {
    return tries <= 0 || heaviest <= std::max(target, bound_ + (bound_ >> kVaryToleranceBits));
  };
  for (std::size_t giver = 0; giver < varied_.size(); ++giver)
    for (std::size_t taker = 0; taker < varied_.size() && !enough(); ++taker) {
      if (giver == taker || varied_[giver] == 1 || varied_[taker] == most_copies) continue;
      if (copy_load(pool.loads[giver], varied_[giver] - 1) >= heaviest) break;
      --tries;
      --varied_[giver];
      ++varied_[taker];
      counts_.list_items(pool.loads, varied_);
      packing_.fill(counts_.item_loads(), counts_.item_experts(), pool.capacities, distinct);
      const FixedLoad now = exchange(pool, target, search);
      if (now < heaviest) {
        heaviest = now;
        keep();
      } else {
        ++varied_[giver];
        --varied_[taker];
      }
    }
  return heaviest;
}

bool PoolSolver::search_whole(const Pool& pool, FixedLoad& heaviest, bool distinct) {
  const bool whole = small_.search(pool, heaviest, distinct);
  heaviest = small_.heaviest();
  if (small_.improved()) std::ranges::copy(small_.expert_in(), expert_in_.begin());
  return whole;
}

void PoolSolver::keep() {
  expert_in_.resize(packing_.num_slots());
  for (std::size_t slot = 0; slot < expert_in_.size(); ++slot) expert_in_[slot] = packing_.expert_in(slot);
}

}  // namespace evenkeel
