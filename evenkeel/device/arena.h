// The one owner of MoE memory on a rank. Everything a step holds, for all layers of the rank, is lent by an
// Arena as Buffers and given back when they go; nothing else on the step's path allocates.
//
// Method   One reserved range of addresses, best fit among the gaps, neighbours joined when given back. What
//          stays beyond a step is cut from a gap's low end, what goes with the step from its high end:
//          buffers of a step that go in the reverse order of their coming need no more space than their sum.
// Cost     O(gaps) a call; the list of gaps keeps its capacity, so a warm arena allocates nothing itself.
// Device   The bytes may be a GPU's: an arena keeps its books on the host and never touches them. With a
//          budget all of it is taken from the GPU at once; without one, as it is first lent.
// Streams  Bytes given back are lent again at once: on a DeviceStream, work of the new owner comes after that
//          of the old one in the order of the stream. Who used bytes on a second stream has the first one
//          wait for it before they are given back (Fork in device_stream.h does).
// Counts   Bytes in use are those lent, each rounded up to kAlignment; peak_bytes() is their largest value.
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

// Until when bytes are wanted: within the step, or beyond it (saved for backward).
enum class Lifetime { step, held };

// Bytes lent by an arena, aligned to Arena::kAlignment and not initialised. Move-only; must go before the
// arena.
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

// Not for two threads at once.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = kCacheLine;
  static constexpr std::int64_t kNoBudget = -1;

  // `budget_bytes` is the most that may be lent at a time; without one, the device's memory is.
  // Throws InvalidArgument for another negative number, Unsupported if there is not so much.
  explicit Arena(Device device, std::int64_t budget_bytes = kNoBudget);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Takes whole_lines(bytes). `name` says what the bytes are for. Throws BudgetTooSmall when no gap is large
  // enough, and, without a budget only, Unsupported when the device has no more.
  Buffer allocate(std::int64_t bytes, const char* name, Lifetime lifetime = Lifetime::step);
  template <class T>
  Buffer allocate_for(std::int64_t count, const char* name, Lifetime lifetime = Lifetime::step) {
    return allocate(count * static_cast<std::int64_t>(sizeof(T)), name, lifetime);
  }

  // Whether a budget was given.
  bool is_bounded() const { return bounded_; }
  std::int64_t budget_bytes() const { return capacity_; }
  // As Device::gpu(), of its device.
  int gpu() const { return gpu_; }
  // The most that one allocation, or the buffers of one step together, can have now.
  std::int64_t largest_gap_bytes() const;
  // As largest_gap_bytes(), for when this buffer of the arena will have been given back.
  std::int64_t largest_gap_bytes_without(const Buffer& buffer) const;

  // A layer's claim for as long as the arena lives: a step of it must always find `step_bytes` in one gap,
  // and up to so many of its states wait for backward, each with `state_bytes` at least. Who keeps bytes
  // beyond a step leaves the largest step free. Throws BudgetTooSmall, claiming nothing, where all claims
  // together exceed the budget.
  void claim(std::int64_t step_bytes, std::int64_t state_bytes, int states);
  std::int64_t claimed_step_bytes() const { return claimed_step_; }
  // The bytes that a state can keep beyond those claimed for it, if all states keep as many.
  std::int64_t spare_state_bytes() const;

  std::int64_t in_use_bytes() const { return in_use_; }
  std::int64_t peak_bytes() const { return peak_; }
  // Forgets the peak: it becomes what is in use now.
  void reset_peak() { peak_ = in_use_; }

  // Tells `watcher` of every buffer from now on, instead of who was told before; nobody if null. It must stay
  // until it is replaced or the arena goes.
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
  std::vector<Gap> gaps_;  // by address, never touching
  ArenaWatcher* watcher_ = nullptr;
};

inline void Buffer::release() {
  if (arena_ != nullptr) std::exchange(arena_, nullptr)->give_back(std::exchange(bytes_, {}));
}

}  // namespace evenkeel
