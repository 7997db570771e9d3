// What forward saved of a chunk's activations: those of all positions but one run of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/memory/chunk_bytes.h"

namespace evenkeel {

class SavedActivations {
 public:
  // Nothing.
  SavedActivations() = default;
  // Those of `positions` of the chunk's. The others are of the group with the most, as far as it has so many:
  // its products are the ones that lose least by being computed again.
  SavedActivations(Arena& arena, const Dispatched& dispatched, std::int64_t positions,
                   const ChunkShape& shape, Lifetime lifetime);

  bool any() const { return bytes_.data() != nullptr; }
  std::int64_t positions() const { return positions_; }
  // Where the run that was not saved begins and ends.
  std::int64_t again_begin() const { return again_begin_; }
  std::int64_t again_end() const { return again_end_; }
  // Of a position outside the run; null where nothing is saved.
  std::byte* at(std::int64_t position) const;
  const Buffer& bytes() const { return bytes_; }
  void release() { bytes_.release(); }

 private:
  Buffer bytes_;
  std::int64_t bytes_each_ = 0;
  std::int64_t positions_ = 0;
  std::int64_t again_begin_ = 0;
  std::int64_t again_end_ = 0;
};

}  // namespace evenkeel
