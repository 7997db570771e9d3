#include "evenkeel/placement/internal/pool_solver.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel {

namespace {

// A rank this little above the bound is not worth another exchange: 1 part in 2^15.
constexpr int kToleranceBits = 15;

}  // namespace

FixedLoad PoolSolver::solve(const Pool& pool, FixedLoad target, bool distinct) {
  const auto num_ranks = static_cast<int>(pool.rooms.size());
  const auto num_experts = static_cast<int>(pool.loads.size());
  const bool fits_distinct = std::ranges::max(pool.rooms) <= num_experts;
  counts_.choose(pool.loads, pool.num_slots,
                 fits_distinct ? num_ranks : std::numeric_limits<std::int32_t>::max());
  const FixedLoad total = std::reduce(pool.loads.begin(), pool.loads.end(), FixedLoad{0});
  bound_ = std::max(total / num_ranks, counts_.largest_copy());
  packing_.fill(counts_.item_loads(), counts_.item_experts(), pool.rooms, distinct && fits_distinct);
  return packing_.exchange(std::max(target, bound_ + (bound_ >> kToleranceBits)));
}

}  // namespace evenkeel
