// Replaces the header of the same name: the kernel's copies and barriers on an emulated block.
#pragma once

#include "evenkeel/compute/cuda/internal/boxes.h"
#include "evenkeel/compute/cuda/internal/tensor_map.h"
#include "tests/compute/emulation/block.h"
#include "tests/compute/emulation/shared_memory.h"

namespace evenkeel::cuda {

using evenkeel::testing::EmulatedBlock;

inline std::uint32_t shared_address(const void* pointer) {
  return EmulatedBlock::current().address_of(pointer);
}

// A thread's cp.async: started here, done when the scheduler picks it, visible to wgmma after
// show_to_wgmma().
inline void copy_async(std::uint32_t to, const void* from, int bytes) {
  EmulatedBlock::current().thread().copies.push_back({to, from, bytes});
}
// Used only by the generic kernel, which no emulated block runs.
inline void copy_async_commit() {}
template <int>
void copy_async_wait() {}

inline void show_to_wgmma() {
  EmulatedBlock::current().show();
}

struct CopyLines {
  std::uint32_t base;
  void operator()(std::uint32_t to, const bf16* from, int numbers) const {
    copy_async(base + to, from, 2 * numbers);
  }
};

// mbarrier as the PTX manual describes it.
class Barrier {
 public:
  void init(int arrivals) {
    arrivals_ = missing_ = static_cast<std::int16_t>(arrivals);
    bytes_ = 0;
    phase_ = 0;
  }
  void arrive() {
    if (--missing_ < 0) evenkeel::testing::give_up("more arrivals than a barrier's phase has");
    complete();
  }
  void arrive_expecting(int bytes) {
    bytes_ += bytes;
    arrive();
  }
  void deliver(int bytes) {
    bytes_ -= bytes;
    complete();
  }
  void wait(std::uint32_t parity) {
    EmulatedBlock::current().fibers().wait_until([this, parity] { return phase_ % 2 != parity; });
  }

 private:
  void complete() {
    if (missing_ > 0 || bytes_ != 0) return;
    missing_ = arrivals_;
    ++phase_;
  }
  std::int32_t bytes_;
  std::int16_t arrivals_, missing_;
  std::uint32_t phase_;
};

inline void publish_barriers() {}

inline void copy_async_arrive(Barrier& barrier) {
  EmulatedBlock& block = EmulatedBlock::current();
  block.fibers().defer(block.fibers().lane(),
                       [&block, &barrier, copies = std::exchange(block.thread().copies, {})] {
                         block.finish(copies);
                         barrier.arrive();
                       });
}

// The matrix description that the test stores in a tensor map.
struct EmulatedMap {
  const bf16* matrix;
  std::int64_t rows, columns;
};

inline void acquire_map(const void* map) {
  EmulatedBlock::current().thread().acquired_map = map;
}
inline void prefetch_map(const void* map) {
  EmulatedBlock::current().thread().prefetched_map = map;
}

inline void copy_box(std::uint32_t to, const void* map, int row, int column, Barrier& barrier) {
  EmulatedBlock& block = EmulatedBlock::current();
  if (map != block.thread().acquired_map && map != block.thread().prefetched_map)
    evenkeel::testing::give_up("a tensor map was used that had not been acquired");
  EmulatedMap matrix;
  std::memcpy(&matrix, map, sizeof matrix);
  block.fibers().defer(evenkeel::testing::FiberBlock::kNoSequence, [=, &block, &barrier] {
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < 64; ++c) {
        const bool inside = row + r < matrix.rows && column + c < matrix.columns;
        const bf16 number = inside ? matrix.matrix[(row + r) * matrix.columns + column + c] : bf16(0.0f);
        const std::uint32_t plain = to + static_cast<std::uint32_t>(r * 128 + c * 2);
        std::memcpy(block.at(evenkeel::testing::swizzled(plain)), &number, sizeof number);
      }
    barrier.deliver(64 * 128);
  });
}

}  // namespace evenkeel::cuda
