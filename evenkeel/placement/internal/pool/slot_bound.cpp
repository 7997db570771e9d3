#include <algorithm>
#include <numeric>
#include <vector>

#include "evenkeel/placement/internal/pool/pool.h"

namespace evenkeel::internal {

namespace {

// If ranks have more slots than this, the mean is as good a bound.
constexpr int kMostCapacity = 5;
constexpr int kHalvings = 14;

struct Split {
  double slots_per_copy = 0;  // further slots to split one large copy
  double large_copies = 0;
};

FixedLoad largest_expert_bound(const Pool& pool) {
  std::vector<FixedLoad> sorted(pool.loads.begin(), pool.loads.end());
  std::ranges::sort(sorted);
  const auto others = std::max(std::ranges::min(pool.capacities) - 1, 0);
  return std::reduce(sorted.begin(), sorted.begin() + others, sorted.back());
}

// Whether x passes the test of slot_bound() with j = per_rank. `splits` is scratch.
bool possible(const Pool& pool, int per_rank, FixedLoad x, std::vector<Split>& splits) {
  std::int64_t slots = pool.num_slots;
  std::int64_t too_many = 0;  // large copies beyond what the ranks can hold
  for (std::int32_t capacity : pool.capacities) too_many -= std::min(capacity, per_rank);
  splits.clear();
  for (FixedLoad load : pool.loads) {
    if (load * (per_rank + 1) <= x) {
      --slots;
      continue;
    }
    const std::int64_t copies = (load + x - 1) / x;
    const std::int64_t split = (load * (per_rank + 1) + x - 1) / x;
    slots -= copies;
    too_many += copies;
    splits.push_back(
        {static_cast<double>(split - copies) / static_cast<double>(copies), static_cast<double>(copies)});
  }
  if (slots < 0) return false;
  std::ranges::sort(splits, {}, &Split::slots_per_copy);
  auto left = static_cast<double>(slots);
  auto excess = static_cast<double>(too_many);
  for (const Split& split : splits) {
    if (excess <= 0) break;
    const double gone = std::min(excess, split.large_copies);
    left -= gone * split.slots_per_copy;
    excess -= gone;
  }
  return left >= -1e-9;
}

}  // namespace

FixedLoad slot_bound(const Pool& pool, FixedLoad low, FixedLoad high) {
  if (pool.num_slots == static_cast<int>(pool.loads.size()))
    low = std::max(low, std::min(largest_expert_bound(pool), high));
  std::vector<Split> splits;
  const int capacity = std::ranges::max(pool.capacities);
  for (int per_rank = 1; per_rank < capacity && capacity <= kMostCapacity; ++per_rank) {
    if (high - low < 2 || possible(pool, per_rank, low + 1, splits)) continue;
    FixedLoad possible_at = high;
    for (int i = 0; i < kHalvings && possible_at - low > 1; ++i) {
      const FixedLoad middle = low + (possible_at - low) / 2;
      (possible(pool, per_rank, middle, splits) ? possible_at : low) = middle;
    }
  }
  return low;
}

}  // namespace evenkeel::internal
