// The one owner of MoE memory on a rank. Everything a step holds, for all layers of the rank, is lent by an
// Arena as Buffers and given back when they go; nothing else on the step's path allocates.
//
// Method   One reserved range of addresses, best fit among the gaps, neighbours joined when given back.
// Cost     O(gaps) a call; the list of gaps keeps its capacity, so a warm arena allocates nothing itself.
// Counts   Bytes in use are those lent, each rounded up to kAlignment; peak_bytes() is their largest value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/base/check.h"

namespace evenkeel {

// Where memory and work live.
class Device {
 public:
  static Device cpu() { return Device(); }

 private:
  Device() = default;
};

class Arena;

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
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kNoBudget = -1;

  // `budget_bytes` is the most that may be lent at a time; without one, the machine's memory is.
  // Throws InvalidArgument for another negative number, Unsupported if the addresses cannot be reserved.
  explicit Arena(Device device, std::int64_t budget_bytes = kNoBudget);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `name` says what the bytes are for. Throws BudgetTooSmall when no gap is large enough.
  Buffer allocate(std::int64_t bytes, const char* name);
  template <class T>
  Buffer allocate_for(std::int64_t count, const char* name) {
    return allocate(count * static_cast<std::int64_t>(sizeof(T)), name);
  }

  std::int64_t budget_bytes() const { return capacity_; }
  std::int64_t in_use_bytes() const { return in_use_; }
  std::int64_t peak_bytes() const { return peak_; }
  // Forgets the peak: it becomes what is in use now.
  void reset_peak() { peak_ = in_use_; }

 private:
  friend class Buffer;
  struct Gap {
    std::int64_t begin;
    std::int64_t bytes;
  };

  void give_back(std::span<std::byte> bytes);

  std::byte* base_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::vector<Gap> gaps_;  // by address, never touching
};

inline void Buffer::release() {
  if (arena_ != nullptr) std::exchange(arena_, nullptr)->give_back(std::exchange(bytes_, {}));
}

}  // namespace evenkeel
