// The activations that forward saved of a chunk: those of all positions but the first of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"

namespace evenkeel::internal {

class SavedActivations {
 public:
  // Nothing.
  SavedActivations() = default;
  // Those of the last `positions` of the chunk's. The first are of a group with many: its products are the
  // ones that lose least by being computed again.
  SavedActivations(Arena& arena, const Dispatched& dispatched, const SavedPositions& positions,
                   const ChunkShape& shape, Lifetime lifetime);

  const SavedPositions& positions() const { return positions_; }
  bool any() const { return positions_.all() > 0; }
  // Of the positions, those before `foreign_begin` were not saved, those from `own_begin` on go first.
  std::int64_t foreign_begin() const { return foreign_begin_; }
  std::int64_t own_begin() const { return foreign_begin_ + positions_.foreign; }
  // Of a position that was saved; null for the others.
  std::byte* at(std::int64_t position) const;
  const Buffer& own() const { return own_; }
  const Buffer& foreign() const { return foreign_; }
  void release_own() { own_.release(); }
  void release_foreign() { foreign_.release(); }

 private:
  Buffer own_, foreign_;
  std::int64_t bytes_each_ = 0;
  SavedPositions positions_;
  std::int64_t foreign_begin_ = 0;
};

}  // namespace evenkeel::internal
