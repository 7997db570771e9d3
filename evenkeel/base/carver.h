// Cuts a block of memory into consecutive pieces. Given a null block, it only adds up the bytes of the
// pieces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/base/bytes.h"

namespace evenkeel {

// Every piece takes a multiple of `kAlignment` bytes. The caller must align `base`.
template <std::int64_t kAlignment>
class AlignedCarver {
 public:
  explicit AlignedCarver(std::byte* base) : base_(base) {}

  template <class T>
  T* take(std::int64_t count) {
    static_assert(kAlignment % alignof(T) == 0);
    std::byte* const piece = base_ == nullptr ? nullptr : base_ + used_;
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    used_ += round_up(bytes, kAlignment);
    return reinterpret_cast<T*>(piece);
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

}  // namespace evenkeel
