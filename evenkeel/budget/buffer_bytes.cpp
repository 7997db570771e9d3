#include "evenkeel/budget/buffer_bytes.h"

#include <algorithm>
#include <limits>

namespace evenkeel {

BufferBytes::BufferBytes(const ChunkShape& shape, Recompute recompute)
    : least_(shape),
      shape_(with_workspaces(shape, std::numeric_limits<std::int64_t>::max())),
      whole_again_(recompute == Recompute::whole) {}

std::int64_t BufferBytes::of_chunk(ChunkUse use, const ChunkLoad& load) const {
  const std::int64_t all = load.positions_here;
  switch (use) {
    case ChunkUse::forward:
      return forward_bytes(shape_, load, 0);
    case ChunkUse::forward_kept:
      return forward_bytes(shape_, load, all);
    case ChunkUse::backward_kept:
      return backward_bytes(shape_, load, all);
    case ChunkUse::recompute:
      break;
  }
  if (!whole_again_) return recompute_bytes(shape_, load);
  return std::max(forward_bytes(shape_, load, all), backward_bytes(shape_, load, all));
}

std::int64_t BufferBytes::foreign(ChunkUse use, const ForeignLoad& foreign) const {
  if (use == ChunkUse::forward || use == ChunkUse::forward_kept)
    return foreign.weights * shape_.forward_weight_bytes;
  const std::int64_t again = whole_again_ ? shape_.forward_weight_bytes : shape_.recompute_weight_bytes;
  return foreign.weights * (shape_.backward_weight_bytes + (use == ChunkUse::recompute ? again : 0)) +
         foreign.gradients * shape_.gradient_bytes;
}

// A gradient that comes home is counted in addition, because it may not fit where the borrowed weights were.
std::int64_t BufferBytes::in_transit_bytes(ChunkUse use, const ForeignLoad& load) const {
  const bool forward = use == ChunkUse::forward || use == ChunkUse::forward_kept;
  const std::int64_t more =
      forward ? (load.weights > 0 ? shape_.arrival_bytes : 0) : (load.lent > 0 ? shape_.gradient_bytes : 0);
  return foreign(use, load) + more;
}

}  // namespace evenkeel
