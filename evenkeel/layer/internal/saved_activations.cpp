#include "evenkeel/layer/internal/saved_activations.h"

namespace evenkeel::internal {

SavedActivations::SavedActivations(Arena& arena, const Dispatched& dispatched,
                                   const SavedPositions& positions, const ChunkShape& shape,
                                   Lifetime lifetime)
    : bytes_each_(shape.saved_bytes),
      positions_(positions),
      foreign_begin_(dispatched.positions_here - positions.all()) {
  foreign_ = arena.allocate(saved_bytes(shape, positions.foreign), "saved activations", lifetime);
  own_ = arena.allocate(saved_bytes(shape, positions.own), "saved activations", lifetime);
}

std::byte* SavedActivations::at(std::int64_t position) const {
  if (position < foreign_begin_) return nullptr;
  if (position < own_begin()) return foreign_.data() + (position - foreign_begin_) * bytes_each_;
  return own_.data() + (position - own_begin()) * bytes_each_;
}

}  // namespace evenkeel::internal
