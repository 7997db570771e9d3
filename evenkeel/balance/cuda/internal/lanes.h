// Divides a planner's work: over all lanes of its team or over warps. The greedy part searches over the lanes
// of one warp, and each search ends in two or three warp instructions.
//
// Contract  In searches, control flow and all values are the same on all lanes, except inside the functions
//           that are passed in. once() and for_each() begin and end with a sync().
// Rolled    Loops here are not unrolled. Most run once or twice, and each is inlined wherever it is used.
//           Code that runs only once spends most of its time on being fetched.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/base/host_device.h"
#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// The key of an item that is no candidate.
inline constexpr std::int32_t kNoKey = std::numeric_limits<std::int32_t>::max();

// Calls f(0), ..., f(n - 1), divided over all lanes of a team.
template <class Team, class F>
EVENKEEL_HOST_DEVICE void share_out(const Team& team, int n, const F& f) {
  EVENKEEL_NO_UNROLL
  for (int i = team.rank(); i < n; i += team.size()) f(i);
}

// Calls f(i, first, step) for every i below n. Several lanes share each i; each of them takes first, first +
// step, ...
template <class Team, class F>
EVENKEEL_HOST_DEVICE void share_out_in_parts(const Team& team, int n, const F& f) {
  if (n <= 0) return;
  const int parts = n < team.size() ? team.size() / n : 1;
  share_out(team, n * parts, [&](int i) { f(i % n, i / n, parts); });
}

template <class Team>
class Lanes {
 public:
  // `at` is -1 if there is no candidate.
  struct Found {
    int at;
    std::int32_t key;
  };

  EVENKEEL_HOST_DEVICE int size() const { return team_.size(); }
  EVENKEEL_HOST_DEVICE int rank() const { return team_.rank(); }
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
    share_out(team_, n, f);
    team_.sync();
  }

  // The first of 0..n-1 with the smallest key.
  template <class Key>
  EVENKEEL_HOST_DEVICE Found best(int n, const Key& key) const {
    Found own{kNoKey, kNoKey};
    share_out(team_, n, [&](int i) { take_lesser(own, i, key(i)); });
    const std::int32_t smallest = team_.min(own.key);
    // If each lane has at most one key, a vote is cheaper than a reduction.
    if (n <= team_.size()) return {team_.first_lane(own.key == smallest && smallest != kNoKey), smallest};
    return {first_with(smallest, own), smallest};
  }

  // The first with the smallest value, and the first with the largest.
  template <class Value>
  EVENKEEL_HOST_DEVICE void extremes(int n, const Value& value, Found& least, Found& most) const {
    Found own_least{kNoKey, kNoKey}, own_most{kNoKey, kNoKey};
    EVENKEEL_UNROLL_BY(2)
    for (int i = team_.rank(); i < n; i += team_.size()) {
      const std::int32_t v = value(i);
      take_lesser(own_least, i, v);
      take_lesser(own_most, i, -v);
    }
    least = first_of(own_least);
    most = first_of(own_most);
    most.key = -most.key;
  }

  // The first of begin..n-1 that satisfies the predicate; -1 where none does.
  template <class Predicate>
  EVENKEEL_HOST_DEVICE int first(int begin, int n, const Predicate& holds) const {
    EVENKEEL_NO_UNROLL
    for (int base = begin; base < n; base += team_.size()) {
      const int i = base + team_.rank();
      const int lane = first_lane(i < n && holds(i));
      if (lane >= 0) return base + lane;
    }
    return -1;
  }

  // The first lane with `says_so`; -1 for none.
  EVENKEEL_HOST_DEVICE int first_lane(bool says_so) const { return team_.first_lane(says_so); }
  // The least and the largest of the lanes' values.
  EVENKEEL_HOST_DEVICE std::int32_t min_of(std::int32_t own) const { return team_.min(own); }
  EVENKEEL_HOST_DEVICE std::int32_t max_of(std::int32_t own) const { return team_.max(own); }

  // The largest of n values; -kNoKey if there are none.
  template <class Value>
  EVENKEEL_HOST_DEVICE std::int32_t max(int n, const Value& value) const {
    std::int32_t own = -kNoKey;
    EVENKEEL_UNROLL_BY(4)
    for (int i = team_.rank(); i < n; i += team_.size()) {
      const std::int32_t v = value(i);
      own = v > own ? v : own;
    }
    return team_.max(own);
  }

  template <class Value>
  EVENKEEL_HOST_DEVICE std::int32_t sum(int n, const Value& value) const {
    std::int32_t own = 0;
    share_out(team_, n, [&](int i) { own += value(i); });
    return team_.sum(own);
  }

 private:
  static EVENKEEL_HOST_DEVICE void take_lesser(Found& own, int i, std::int32_t key) {
    if (key < own.key) own = {i, key};
  }
  EVENKEEL_HOST_DEVICE Found first_of(const Found& own) const {
    const std::int32_t key = team_.min(own.key);
    return {first_with(key, own), key};
  }
  EVENKEEL_HOST_DEVICE int first_with(std::int32_t key, const Found& own) const {
    const int at = team_.min(own.key == key ? own.at : kNoKey);
    return at == kNoKey ? -1 : at;
  }

  Team team_{};
};

// The fewest lanes that this type can have.
template <class Lanes>
inline constexpr int kLeastLanes = 32;
template <>
inline constexpr int kLeastLanes<Lanes<HostTeam>> = 1;

// Lanes for work that every warp of a team repeats: all warps get the same result, without a barrier.
EVENKEEL_HOST_DEVICE inline Lanes<HostTeam> lanes_of(const HostTeam&) {
  return {};
}

struct Idle {
  EVENKEEL_HOST_DEVICE void operator()(int, int) const {}
};

// Runs f, the greedy part of a block's work, on its first warp. The other threads wait, or meanwhile run
// aside(first, step), which takes every step-th item from `first` on.
template <class F, class Aside = Idle>
EVENKEEL_HOST_DEVICE void lead(const HostTeam&, const F& f, const Aside& aside = {}) {
  f(Lanes<HostTeam>());
  aside(0, 1);
}

// Calls f(lanes, i) for every i below n, each on one warp.
template <class F>
EVENKEEL_HOST_DEVICE void share_out_by_warp(const HostTeam&, int n, const F& f) {
  for (int i = 0; i < n; ++i) f(Lanes<HostTeam>(), i);
}

#if defined(__CUDACC__)
EVENKEEL_HOST_DEVICE inline Lanes<WarpTeam> lanes_of(const BlockTeam&) {
  return {};
}

template <class F, class Aside = Idle>
EVENKEEL_HOST_DEVICE void lead(const BlockTeam& team, const F& f, const Aside& aside = {}) {
  team.sync();
  if (team.rank() < internal::kWarp)
    f(Lanes<WarpTeam>());
  else
    aside(team.rank() - internal::kWarp, team.size() - internal::kWarp);
  team.sync();
}

template <class F>
EVENKEEL_HOST_DEVICE void share_out_by_warp(const BlockTeam& team, int n, const F& f) {
  EVENKEEL_NO_UNROLL
  for (int i = team.rank() / internal::kWarp; i < n; i += team.size() / internal::kWarp)
    f(Lanes<WarpTeam>(), i);
}
#endif

}  // namespace evenkeel::cuda
