// The kernel's copies and barriers, on an emulated block; stands in for the header of this name.
#pragma once

#include <chrono>

#include "evenkeel/compute/cuda/internal/boxes.h"
#include "evenkeel/compute/cuda/internal/tensor_map.h"
#include "tests/compute/emulation/block.h"
#include "tests/compute/emulation/shared_memory.h"

namespace evenkeel::cuda {

using evenkeel::testing::EmulatedBlock;

inline std::uint32_t shared_address(const void* pointer) {
  return EmulatedBlock::current()->address_of(pointer);
}

// A thread's cp.async: begun, done when the copy engine has come to it, seen by wgmma once shown.
using PendingCopies = std::vector<EmulatedBlock::Copy>;
inline thread_local PendingCopies pending_copies;

inline void copy_async(std::uint32_t to, const void* from, int bytes) {
  pending_copies.push_back({to, from, bytes});
}
// Of the generic kernel, which no emulated block runs.
inline void copy_async_commit() {}
template <int>
void copy_async_wait() {}

inline void show_to_wgmma() {
  EmulatedBlock::current()->show();
}

struct CopyLines {
  std::uint32_t base;
  void operator()(std::uint32_t to, const bf16* from, int numbers) const {
    copy_async(base + to, from, 2 * numbers);
  }
};

// A busy machine may be slow; what never comes is not waited for.
inline constexpr std::chrono::seconds kPatience{300};

// As the PTX manual describes mbarrier; eight bytes, as that has.
class Barrier {
 public:
  void init(int arrivals) {
    state_ = std::make_unique<State>();
    state_->arrivals = state_->missing = arrivals;
  }
  void arrive() {
    const std::lock_guard lock(state_->mutex);
    if (--state_->missing < 0) evenkeel::testing::give_up("more arrivals than a barrier's phase has");
    state_->complete();
  }
  void arrive_expecting(int bytes) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->bytes += bytes;
    }
    arrive();
  }
  void deliver(int bytes) {
    const std::lock_guard lock(state_->mutex);
    state_->bytes -= bytes;
    state_->complete();
  }
  void wait(std::uint32_t parity) {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, kPatience, [&] { return state_->phase % 2 != parity; }))
      evenkeel::testing::give_up("a barrier's phase never ended");
  }

 private:
  struct State {
    void complete() {
      if (missing > 0 || bytes != 0) return;
      missing = arrivals;
      ++phase;
      changed.notify_all();
    }
    std::mutex mutex;
    std::condition_variable changed;
    int arrivals = 0, missing = 0, bytes = 0;
    std::uint32_t phase = 0;
  };
  std::unique_ptr<State> state_;
};
static_assert(sizeof(Barrier) == 8);

inline void publish_barriers() {}

inline void copy_async_arrive(Barrier& barrier) {
  EmulatedBlock* const block = EmulatedBlock::current();
  block->enqueue([block, &barrier, copies = std::exchange(pending_copies, {})] {
    block->finish(copies);
    barrier.arrive();
  });
}

// What the test puts into a tensor map.
struct EmulatedMap {
  const bf16* matrix;
  std::int64_t rows, columns;
};

inline thread_local const void* acquired_map = nullptr;
inline thread_local const void* prefetched_map = nullptr;
inline void acquire_map(const void* map) {
  acquired_map = map;
}
inline void prefetch_map(const void* map) {
  prefetched_map = map;
}

inline void copy_box(std::uint32_t to, const void* map, int row, int column, Barrier& barrier) {
  if (map != acquired_map && map != prefetched_map)
    evenkeel::testing::give_up("a tensor map was used that had not been acquired");
  EmulatedMap matrix;
  std::memcpy(&matrix, map, sizeof matrix);
  EmulatedBlock* const block = EmulatedBlock::current();
  block->enqueue([=, &barrier] {
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < 64; ++c) {
        const bool inside = row + r < matrix.rows && column + c < matrix.columns;
        const bf16 number = inside ? matrix.matrix[(row + r) * matrix.columns + column + c] : bf16(0.0f);
        const std::uint32_t plain = to + static_cast<std::uint32_t>(r * 128 + c * 2);
        std::memcpy(block->at(evenkeel::testing::swizzled(plain)), &number, sizeof number);
      }
    barrier.deliver(64 * 128);
  });
}

}  // namespace evenkeel::cuda
