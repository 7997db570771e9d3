// The one owner of MoE memory on a rank. An Arena lends Buffers for everything that a step holds, for all
// layers of the rank. Nothing else on the step's path allocates.
//
// Method   One reserved address range, best fit among the gaps, neighbouring gaps joined on release. Buffers
//          held beyond a step are cut from a gap's low end, the step's own buffers from its high end.
//          Step buffers that are freed in reverse order of allocation need no more space than their sum.
// Cost     O(gaps) per call. The list of gaps keeps its capacity, so a warm arena does not allocate.
// Device   The memory may be a GPU's: an arena keeps its bookkeeping on the host and never touches the bytes.
//          With a budget all GPU memory is allocated at once; without one, when it is first lent.
// Streams  Released bytes are lent again at once. This is safe on one DeviceStream, whose order puts the new
//          owner's work after the old owner's. A user of a second stream must make the first stream wait for
//          it before releasing the bytes (StreamFork in device_stream.h does this).
// Counts   in_use_bytes() sums the lent buffers, each rounded up to kAlignment. peak_bytes() is the largest
//          such sum so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/check.h"
#include "evenkeel/device/device.h"

namespace evenkeel {

class Arena;
class ArenaWatcher;

// How long a buffer is needed: within the step, or beyond it (saved for backward).
enum class Lifetime { step, held };

// Bytes lent by an arena, aligned to Arena::kAlignment and not initialised. Move-only. Must be destroyed
// before the arena.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      release();
      arena_ = std::exchange(other.arena_, nullptr);
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  ~Buffer() { release(); }

  // Gives the bytes back early.
  void release();
  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }
  // The bytes as objects of a trivial type.
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  friend class Arena;
  Buffer(Arena* arena, std::span<std::byte> bytes) : arena_(arena), bytes_(bytes) {}

  Arena* arena_ = nullptr;
  std::span<std::byte> bytes_;
};

// Not thread-safe.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = kCacheLine;
  static constexpr std::int64_t kNoBudget = -1;

  // `budget_bytes` limits the bytes lent at a time; with kNoBudget the device's free memory is the limit.
  // Throws InvalidArgument for other negative values, and Unsupported if the device has too little memory.
  explicit Arena(Device device, std::int64_t budget_bytes = kNoBudget);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Allocates whole_lines(bytes). `name` says what the bytes are for. Throws BudgetTooSmall if no gap is
  // large enough. Without a budget it throws Unsupported if the device has no more memory.
  Buffer allocate(std::int64_t bytes, const char* name, Lifetime lifetime = Lifetime::step);
  template <class T>
  Buffer allocate_for(std::int64_t count, const char* name, Lifetime lifetime = Lifetime::step) {
    return allocate(count * static_cast<std::int64_t>(sizeof(T)), name, lifetime);
  }

  // Whether a budget was given.
  bool is_bounded() const { return bounded_; }
  std::int64_t budget_bytes() const { return capacity_; }
  // Device::gpu() of the arena's device.
  int gpu() const { return gpu_; }
  // The most that one allocation, or all buffers of one step together, can get now.
  std::int64_t largest_gap_bytes() const;
  // What largest_gap_bytes() will return once `buffer` is released.
  std::int64_t largest_gap_bytes_without(const Buffer& buffer) const;

  // Registers a layer's needs for the arena's lifetime. Each of its steps needs `step_bytes` in one gap. Up
  // to `states` of its states wait for backward, each holding at least `state_bytes`. Buffers held beyond a
  // step must leave space for the largest claimed step. Throws BudgetTooSmall, claiming nothing, if all
  // claims together exceed the budget.
  void claim(std::int64_t step_bytes, std::int64_t state_bytes, int states);
  std::int64_t claimed_step_bytes() const { return claimed_step_; }
  // The bytes that each state can keep beyond its claim if all states keep the same amount.
  std::int64_t spare_state_bytes() const;

  std::int64_t in_use_bytes() const { return in_use_; }
  std::int64_t peak_bytes() const { return peak_; }
  // Sets the peak to the bytes in use now.
  void reset_peak() { peak_ = in_use_; }

  // Reports every buffer to `watcher` from now on; null reports to none. The watcher must outlive the arena
  // unless it is replaced before.
  void watch(ArenaWatcher* watcher) { watcher_ = watcher; }

 private:
  friend class Buffer;
  struct Gap {
    std::int64_t begin;
    std::int64_t bytes;
  };

  void give_back(std::span<std::byte> bytes);

  bool bounded_;
  int gpu_;
  std::int64_t capacity_;
  std::unique_ptr<MemoryRange> range_;
  std::int64_t claimed_step_ = 0;
  std::int64_t claimed_state_bytes_ = 0;
  int claimed_states_ = 0;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::vector<Gap> gaps_;  // sorted by address; no two are adjacent
  ArenaWatcher* watcher_ = nullptr;
};

inline void Buffer::release() {
  if (arena_ != nullptr) std::exchange(arena_, nullptr)->give_back(std::exchange(bytes_, {}));
}

}  // namespace evenkeel
