// A thread block emulated on the host: one fiber per thread, and the CUDA names that the Hopper kernel uses.
// Asynchronous work happens late, so that a kernel that reads too early gets wrong results. Bulk copies
// happen when the scheduler picks them, cp.async copies at the next fence for wgmma, products when their
// group is waited for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/fiber_block.h"

#define __CUDACC__
#define __CUDA_ARCH_FEAT_SM90_ALL
#define __host__
#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline

struct EmulatedIndex {
  unsigned x = 0;
};
inline EmulatedIndex blockIdx, gridDim, blockDim;

namespace evenkeel::testing {

class EmulatedBlock {
 public:
  static constexpr std::uint32_t kFirstAddress = 1024;

  struct Copy {
    std::uint32_t to;
    const void* from;
    int bytes;
  };
  // A thread's asynchronous work that it has not yet waited for, and the values it sends in shuffles.
  struct Thread {
    std::vector<Copy> copies;
    std::vector<std::function<void()>> products;
    std::deque<std::vector<std::function<void()>>> groups;
    const void* acquired_map = nullptr;
    const void* prefetched_map = nullptr;
    std::array<float, 2> mail;
    std::size_t exchanges = 0;
  };

  EmulatedBlock(int threads, std::uint64_t seed, std::byte* shared)
      : fibers_(threads, seed), threads_(static_cast<std::size_t>(threads)), shared_(shared) {}

  void run(const std::function<void()>& kernel) {
    current_ = this;
    fibers_.run(kernel);
  }
  static EmulatedBlock& current() { return *current_; }

  FiberBlock& fibers() { return fibers_; }
  Thread& thread() { return threads_[static_cast<std::size_t>(fibers_.lane())]; }

  std::uint32_t address_of(const void* pointer) const {
    return kFirstAddress + static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - shared_);
  }
  std::byte* at(std::uint32_t address) const { return shared_ + (address - kFirstAddress); }

  // Two entries suffice: a thread writes its third value only after all others have read its first.
  float exchange(float value, int mask) {
    Thread& own = thread();
    const std::size_t letter = own.exchanges++ % 2;
    own.mail[letter] = value;
    fibers_.wait_for_warp();
    return threads_[static_cast<std::size_t>(fibers_.lane() ^ mask)].mail[letter];
  }
  // Marks copies as done. Shared memory receives their data when a thread calls show().
  void finish(const std::vector<Copy>& copies) {
    unseen_.insert(unseen_.end(), copies.begin(), copies.end());
  }
  void show() {
    for (const Copy& copy : unseen_) {
      std::memset(at(copy.to), 0, 16);
      if (copy.bytes > 0) std::memcpy(at(copy.to), copy.from, static_cast<std::size_t>(copy.bytes));
    }
    unseen_.clear();
  }

 private:
  inline static EmulatedBlock* current_ = nullptr;
  FiberBlock fibers_;
  std::vector<Thread> threads_;
  std::byte* shared_;
  std::vector<Copy> unseen_;
};

// threadIdx of the running fiber.
struct EmulatedThreadIndex {
  struct {
    operator unsigned() const { return static_cast<unsigned>(EmulatedBlock::current().fibers().lane()); }
  } x;
};

}  // namespace evenkeel::testing

inline evenkeel::testing::EmulatedThreadIndex threadIdx;

inline void __syncthreads() {
  evenkeel::testing::EmulatedBlock::current().fibers().wait_for_block();
}
inline void __syncwarp() {
  evenkeel::testing::EmulatedBlock::current().fibers().wait_for_warp();
}
inline float __shfl_xor_sync(unsigned, float value, int mask) {
  return evenkeel::testing::EmulatedBlock::current().exchange(value, mask);
}
inline int __shfl_sync(unsigned, int value, int) {
  return value;
}
inline int atomicAdd(int* to, int value) {
  return std::atomic_ref<int>(*to).fetch_add(value);
}
