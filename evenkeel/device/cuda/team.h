// Teams: one source for integer algorithms on the device and on the host.
//
// Problem    Plans, tables and offsets must be the same integers on host and device, and tests often run
//            without a GPU.
// Method     An algorithm is written once, over a team of lanes: a sequence of for_each() and sync(), scans
//            and reductions. On the device a team is a block (BlockTeam) or a warp (WarpTeam); on the host it
//            is a team of one lane (HostTeam), so that the same source is tested there against an oracle.
// Contract   Every lane of a team makes the same calls in the same order. Integers only, because the order of
//            a sum differs between teams. for_each() does not wait: a lane may read another lane's writes
//            only after sync(). Scans and reductions end with a sync(). A scan or reduction that reads other
//            lanes' writes also begins with one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "evenkeel/base/host_device.h"

namespace evenkeel::cuda {

// A team of one lane, on the host.
class HostTeam {
 public:
  EVENKEEL_HOST_DEVICE int size() const { return 1; }
  EVENKEEL_HOST_DEVICE int rank() const { return 0; }
  EVENKEEL_HOST_DEVICE void sync() const {}

  // Calls f(0), ..., f(n - 1), divided among the lanes.
  template <class Index, class F>
  EVENKEEL_HOST_DEVICE void for_each(Index n, F&& f) const {
    for (Index i = 0; i < n; ++i) f(i);
  }

  // Reductions over the lanes' values; all lanes get the result.
  template <class T>
  EVENKEEL_HOST_DEVICE T sum(T value) const {
    return value;
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T min(T value) const {
    return value;
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T max(T value) const {
    return value;
  }
  // Returns the sum over the lanes before this one; `total` gets the sum over all lanes.
  template <class T>
  EVENKEEL_HOST_DEVICE T sum_before(T value, T& total) const {
    total = value;
    return 0;
  }
  // The first lane with `says_so`; -1 if there is none.
  EVENKEEL_HOST_DEVICE int first_lane(bool says_so) const { return says_so ? 0 : -1; }
};

#if defined(__CUDACC__)

namespace internal {

enum class Combine { sum, min, max };

template <Combine kCombine, class T>
EVENKEEL_HOST_DEVICE T combined(T a, T b) {
  if constexpr (kCombine == Combine::sum) return a + b;
  if constexpr (kCombine == Combine::min) return b < a ? b : a;
  return a < b ? b : a;
}

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr int kWarp = 32;

}  // namespace internal

// The 32 lanes of a warp; needs no shared memory. The methods work only on the device. They are marked for
// the host too, where they have no effect, because templates over teams are.
class WarpTeam {
 public:
  EVENKEEL_HOST_DEVICE int size() const { return internal::kWarp; }
  EVENKEEL_HOST_DEVICE int rank() const {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(threadIdx.x) % internal::kWarp;
#else
    return 0;
#endif
  }
  EVENKEEL_HOST_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
  }

  template <class Index, class F>
  EVENKEEL_HOST_DEVICE void for_each(Index n, F&& f) const {
    for (Index i = static_cast<Index>(rank()); i < n; i += internal::kWarp) f(i);
  }

  template <class T>
  EVENKEEL_HOST_DEVICE T sum(T value) const {
    return all<internal::Combine::sum>(value);
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T min(T value) const {
    return all<internal::Combine::min>(value);
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T max(T value) const {
    return all<internal::Combine::max>(value);
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T sum_before(T value, T& total) const {
    T through = value;
#if defined(__CUDA_ARCH__)
    for (int step = 1; step < internal::kWarp; step *= 2) {
      const T other = __shfl_up_sync(internal::kAllLanes, through, static_cast<unsigned>(step));
      if (rank() >= step) through += other;
    }
    total = __shfl_sync(internal::kAllLanes, through, internal::kWarp - 1);
#else
    total = value;
#endif
    return through - value;
  }
  EVENKEEL_HOST_DEVICE int first_lane(bool says_so) const {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(__ballot_sync(internal::kAllLanes, says_so))) - 1;
#else
    return says_so ? 0 : -1;
#endif
  }

 private:
  template <internal::Combine kCombine, class T>
  EVENKEEL_HOST_DEVICE T all(T value) const {
    static_assert(std::is_integral_v<T>);
#if defined(__CUDA_ARCH__)
    using internal::Combine;
    constexpr bool kIn32Bits = std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint32_t>;
    if constexpr (kIn32Bits && kCombine == Combine::sum)  // a single instruction
      value = __reduce_add_sync(internal::kAllLanes, value);
    else if constexpr (kIn32Bits && kCombine == Combine::min)
      value = __reduce_min_sync(internal::kAllLanes, value);
    else if constexpr (kIn32Bits)
      value = __reduce_max_sync(internal::kAllLanes, value);
    else
      for (int step = internal::kWarp / 2; step > 0; step /= 2)
        value = internal::combined<kCombine>(value, __shfl_xor_sync(internal::kAllLanes, value, step));
#endif
    return value;
  }
};

// All threads of a one-dimensional block whose size is a multiple of 32. `scratch` is in shared memory, and
// only this team uses it: __shared__ BlockTeam::Scratch scratch; const BlockTeam team(scratch);
class BlockTeam {
 public:
  struct Scratch {
    std::int64_t slots[internal::kWarp];
  };

  EVENKEEL_HOST_DEVICE explicit BlockTeam(Scratch& scratch) : slots_(scratch.slots) {}

  EVENKEEL_HOST_DEVICE int size() const {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(blockDim.x);
#else
    return 1;
#endif
  }
  EVENKEEL_HOST_DEVICE int rank() const {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(threadIdx.x);
#else
    return 0;
#endif
  }
  EVENKEEL_HOST_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
  }

  template <class Index, class F>
  EVENKEEL_HOST_DEVICE void for_each(Index n, F&& f) const {
    for (Index i = static_cast<Index>(rank()); i < n; i += static_cast<Index>(size())) f(i);
  }

  template <class T>
  EVENKEEL_HOST_DEVICE T sum(T value) const {
    return all<internal::Combine::sum>(WarpTeam().sum(value));
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T min(T value) const {
    return all<internal::Combine::min>(WarpTeam().min(value));
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T max(T value) const {
    return all<internal::Combine::max>(WarpTeam().max(value));
  }
  template <class T>
  EVENKEEL_HOST_DEVICE T sum_before(T value, T& total) const {
    T of_warp{};
    const T before_in_warp = WarpTeam().sum_before(value, of_warp);
    leave(of_warp);
    const T its = lane() < warps() ? static_cast<T>(slots_[lane()]) : T{};
    const T before_warp = WarpTeam().sum(lane() < warp() ? its : T{});
    total = WarpTeam().sum(its);
    sync();
    return before_warp + before_in_warp;
  }

 private:
  EVENKEEL_HOST_DEVICE int warp() const { return rank() / internal::kWarp; }
  EVENKEEL_HOST_DEVICE int lane() const { return rank() % internal::kWarp; }
  EVENKEEL_HOST_DEVICE int warps() const { return size() / internal::kWarp; }

  template <class T>
  EVENKEEL_HOST_DEVICE void leave(T of_warp) const {
    if (lane() == 0) slots_[warp()] = static_cast<std::int64_t>(of_warp);
    sync();
  }
  // Every lane reads the few slots: this costs less than a second round of shuffles and a barrier.
  template <internal::Combine kCombine, class T>
  EVENKEEL_HOST_DEVICE T all(T of_warp) const {
    leave(of_warp);
    auto result = static_cast<T>(slots_[0]);
    for (int i = 1; i < warps(); ++i)
      result = internal::combined<kCombine>(result, static_cast<T>(slots_[i]));
    sync();
    return result;
  }

  std::int64_t* slots_;
};

#endif  // __CUDACC__

// Adds to an integer that other lanes also add to; the sum does not depend on their order.
EVENKEEL_HOST_DEVICE inline void add(std::int32_t* to, std::int32_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(to, value);
#else
  *to += value;
#endif
}

// Replaces values[i] by the sum of values[0..i) and returns the sum of all. Each lane handles consecutive
// elements, so one scan over the lanes' sums is enough.
template <class Team, class T>
EVENKEEL_HOST_DEVICE T exclusive_scan(const Team& team, T* values, int n) {
  static_assert(std::is_integral_v<T>);
  const int per_lane = (n + team.size() - 1) / team.size();
  const int first = per_lane * team.rank();
  const int begin = first < n ? first : n;
  const int end = n - begin < per_lane ? n : begin + per_lane;
  team.sync();
  T own = 0;
  for (int i = begin; i < end; ++i) own += values[i];
  T total = 0;
  T running = team.sum_before(own, total);
  for (int i = begin; i < end; ++i) {
    const T value = values[i];
    values[i] = running;
    running += value;
  }
  team.sync();
  return total;
}

}  // namespace evenkeel::cuda
