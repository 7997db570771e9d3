#include "evenkeel/placement/internal/pool_solver.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel {

namespace {

// A rank this little above the bound is not worth another exchange of one copy: 1 part in 2^15; nor, 1 part
// in 2^13, one of two, whose cost is counted.
constexpr int kToleranceBits = 15;
constexpr int kPairToleranceBits = 13;
constexpr std::int64_t kMostPairsOfPairs = 60000;

// What one exchange of pairs looks at.
std::int64_t pairs_of_pairs(const Pool& pool) {
  const auto ranks = static_cast<std::int64_t>(pool.rooms.size());
  const std::int64_t room = pool.num_slots / ranks + 1;
  const std::int64_t pairs = room * (room - 1) / 2;
  return std::max<std::int64_t>(pairs * pairs * ranks, 1);
}

}  // namespace

FixedLoad PoolSolver::attempt(const Pool& pool, FixedLoad target, int most_copies, bool distinct) {
  counts_.choose(pool.loads, pool.num_slots, most_copies);
  const FixedLoad total = std::reduce(pool.loads.begin(), pool.loads.end(), FixedLoad{0});
  bound_ = std::max(total / static_cast<FixedLoad>(pool.rooms.size()), counts_.largest_copy());
  packing_.fill(counts_.item_loads(), counts_.item_experts(), pool.rooms, distinct);
  const FixedLoad close = std::max(target, bound_ + (bound_ >> kToleranceBits));
  const FixedLoad near = std::max(target, bound_ + (bound_ >> kPairToleranceBits));
  FixedLoad heaviest = packing_.exchange(close);
  std::int64_t rounds = kMostPairsOfPairs / pairs_of_pairs(pool);
  for (; heaviest > near && rounds > 0 && packing_.exchange_pair(near); --rounds)
    heaviest = packing_.exchange(close);
  return heaviest;
}

FixedLoad PoolSolver::solve(const Pool& pool, FixedLoad target, bool repeats) {
  const auto num_ranks = static_cast<int>(pool.rooms.size());
  const bool distinct = std::ranges::max(pool.rooms) <= static_cast<std::int32_t>(pool.loads.size());
  constexpr int any = std::numeric_limits<std::int32_t>::max();
  FixedLoad heaviest = attempt(pool, target, distinct ? num_ranks : any, distinct);
  keep();
  const FixedLoad near = std::max(target, bound_ + (bound_ >> kPairToleranceBits));
  if (heaviest > near && SmallPool::fits(pool)) {
    bool whole = search_whole(pool, heaviest, distinct);
    if (repeats && distinct) whole = search_whole(pool, heaviest, false);
    if (whole) bound_ = std::max(bound_, heaviest);
    return heaviest;
  }
  if (repeats && distinct && heaviest > near) {
    const FixedLoad bound = bound_;
    const FixedLoad repeated = attempt(pool, target, any, false);
    if (repeated < heaviest) {
      heaviest = repeated;
      keep();
    }
    bound_ = std::min(bound, heaviest);
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
