// A thread block on the host: a thread for each of its threads, and the words of CUDA that the Hopper kernel
// is written in. What is asynchronous happens as late as it may: copies come from another thread, those of
// cp.async once they are shown to wgmma, and products when their groups are waited for. So a kernel
// that reads too early computes something else.
#pragma once

#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
inline thread_local EmulatedIndex threadIdx;
inline EmulatedIndex blockIdx, gridDim, blockDim;

namespace evenkeel::testing {

// Ends the program: a block that hangs cannot be joined.
[[noreturn]] inline void give_up(const char* why) {
  std::fprintf(stderr, "emulated block: %s\n", why);
  std::_Exit(1);
}

class EmulatedBlock {
 public:
  static constexpr std::uint32_t kFirstAddress = 1024;

  EmulatedBlock(int threads, std::byte* shared) : shared_(shared), all_(threads) {
    for (int warp = 0; warp < threads / 32; ++warp) warps_.push_back(std::make_unique<Warp>());
    engine_ = std::thread([this] { serve(); });
  }
  ~EmulatedBlock() {
    enqueue(nullptr);
    engine_.join();
  }

  static EmulatedBlock*& current() {
    static EmulatedBlock* block = nullptr;
    return block;
  }

  void run(const std::function<void()>& kernel) {
    current() = this;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < warps_.size() * 32; ++i)
      threads.emplace_back([&kernel, i] {
        threadIdx.x = i;
        kernel();
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::uint32_t address_of(const void* pointer) const {
    return kFirstAddress + static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - shared_);
  }
  std::byte* at(std::uint32_t address) const { return shared_ + (address - kFirstAddress); }

  void sync_all() { all_.arrive_and_wait(); }
  void sync_warp() { warp().meet.arrive_and_wait(); }
  float exchange(float value, int mask) {
    const unsigned lane = threadIdx.x % 32;
    warp().mail[lane] = value;
    sync_warp();
    const float got = warp().mail[lane ^ static_cast<unsigned>(mask)];
    sync_warp();
    return got;
  }
  struct Copy {
    std::uint32_t to;
    const void* from;
    int bytes;
  };
  // Copies are done, and in shared memory as wgmma sees it once a thread has called show().
  void finish(const std::vector<Copy>& copies) {
    const std::lock_guard lock(unseen_mutex_);
    unseen_.insert(unseen_.end(), copies.begin(), copies.end());
  }
  void show() {
    const std::lock_guard lock(unseen_mutex_);
    for (const Copy& copy : unseen_) {
      std::memset(at(copy.to), 0, 16);
      if (copy.bytes > 0) std::memcpy(at(copy.to), copy.from, static_cast<std::size_t>(copy.bytes));
    }
    unseen_.clear();
  }
  // Work of the copy engine.
  void enqueue(std::function<void()> copy) {
    const std::lock_guard lock(mutex_);
    copies_.push_back(std::move(copy));
    arrived_.notify_one();
  }

 private:
  struct Warp {
    std::barrier<> meet{32};
    std::array<float, 32> mail;
  };
  Warp& warp() { return *warps_[threadIdx.x / 32]; }

  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return !copies_.empty(); });
      const std::function<void()> copy = std::move(copies_.front());
      copies_.pop_front();
      lock.unlock();
      if (copy == nullptr) return;
      std::this_thread::yield();
      copy();
    }
  }

  std::byte* shared_;
  std::barrier<> all_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> copies_;
  std::mutex unseen_mutex_;
  std::vector<Copy> unseen_;
  std::thread engine_;
};

}  // namespace evenkeel::testing

inline void __syncthreads() {
  evenkeel::testing::EmulatedBlock::current()->sync_all();
}
inline void __syncwarp() {
  evenkeel::testing::EmulatedBlock::current()->sync_warp();
}
inline float __shfl_xor_sync(unsigned, float value, int mask) {
  return evenkeel::testing::EmulatedBlock::current()->exchange(value, mask);
}
inline int __shfl_sync(unsigned, int value, int) {
  return value;
}
inline int atomicAdd(int* to, int value) {
  return std::atomic_ref<int>(*to).fetch_add(value);
}
