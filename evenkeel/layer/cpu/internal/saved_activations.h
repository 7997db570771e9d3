// The activations that forward saved of a chunk for its backward pass: of all its positions, or of none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"

namespace evenkeel::internal {

class SavedActivations {
 public:
  // Of none.
  SavedActivations() = default;
  SavedActivations(Arena& arena, const Dispatched& dispatched, const ChunkShape& shape, Lifetime lifetime)
      : buffer_(arena.allocate(saved_bytes(shape, dispatched.positions_here), "saved activations", lifetime)),
        bytes_each_(shape.saved_bytes) {}

  bool any() const { return bytes_each_ > 0; }
  // Of a position; null where none were saved.
  std::byte* at(std::int64_t position) const {
    return any() ? buffer_.data() + position * bytes_each_ : nullptr;
  }
  const Buffer& buffer() const { return buffer_; }
  void release() { buffer_.release(); }

 private:
  Buffer buffer_;
  std::int64_t bytes_each_ = 0;
};

}  // namespace evenkeel::internal
