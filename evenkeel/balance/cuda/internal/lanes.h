// Searches over the lanes of a small team, with which the greedy part of a planner is written: on a
// device by one warp, whose every search ends in two or three of its instructions.
//
// Contract  Control flow is the same on all lanes, and so is every value but those inside the functions
//           that are handed over. once() and for_each() begin and end with a sync().
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// A key that is no candidate's.
inline constexpr std::int32_t kNoKey = std::numeric_limits<std::int32_t>::max();

template <class Team>
class Lanes {
 public:
  EVENKEEL_HOST_DEVICE void sync() const { team_.sync(); }

  template <class F>
  EVENKEEL_HOST_DEVICE void once(const F& f) const {
    team_.sync();
    if (team_.rank() == 0) f();
    team_.sync();
  }

  template <class F>
  EVENKEEL_HOST_DEVICE void for_each(int n, const F& f) const {
    team_.sync();
    team_.for_each(n, f);
    team_.sync();
  }

  // The first of 0..n-1 with the smallest key; -1 where all are kNoKey.
  template <class Key>
  EVENKEEL_HOST_DEVICE int best(int n, const Key& key) const {
    std::int32_t least = kNoKey;
    int at = kNoKey;
    team_.for_each(n, [&](int i) {
      const std::int32_t k = key(i);
      if (k >= least) return;
      least = k;
      at = i;
    });
    const std::int32_t all = smallest(least);
    return all == kNoKey ? -1 : smallest(least == all ? at : kNoKey);
  }

  // The first of begin..n-1 that satisfies the predicate; -1 where none does.
  template <class Predicate>
  EVENKEEL_HOST_DEVICE int first(int begin, int n, const Predicate& holds) const {
    for (int base = begin; base < n; base += team_.size()) {
      const int i = base + team_.rank();
      const std::int32_t found = smallest(i < n && holds(i) ? i : kNoKey);
      if (found != kNoKey) return found;
    }
    return -1;
  }

  template <class Value>
  EVENKEEL_HOST_DEVICE std::int64_t sum(int n, const Value& value) const {
    std::int64_t own = 0;
    team_.for_each(n, [&](int i) { own += value(i); });
    return team_.sum(own);
  }

  // The largest of n values; of none, the smallest number there is.
  template <class Value>
  EVENKEEL_HOST_DEVICE std::int32_t max(int n, const Value& value) const {
    std::int32_t least = kNoKey;
    team_.for_each(n, [&](int i) {
      const std::int32_t negative = -value(i);
      if (negative < least) least = negative;
    });
    return -smallest(least);
  }

 private:
  // One instruction of a warp instead of the five shuffles of any other reduction.
  EVENKEEL_HOST_DEVICE std::int32_t smallest(std::int32_t value) const {
#if defined(__CUDA_ARCH__)
    return __reduce_min_sync(internal::kAllLanes, value);
#else
    return team_.min(value);
#endif
  }

  Team team_;
};

// Hands the greedy part of a block's work to its first warp; the others wait.
template <class F>
EVENKEEL_HOST_DEVICE void lead(const HostTeam&, const F& f) {
  f(Lanes<HostTeam>());
}

#if defined(__CUDACC__)
template <class F>
EVENKEEL_HOST_DEVICE void lead(const BlockTeam& team, const F& f) {
  team.sync();
  if (team.rank() < internal::kWarp) f(Lanes<WarpTeam>());
  team.sync();
}
#endif

}  // namespace evenkeel::cuda
