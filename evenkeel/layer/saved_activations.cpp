#include "evenkeel/layer/saved_activations.h"

#include <algorithm>

namespace evenkeel {

SavedActivations::SavedActivations(Arena& arena, const Dispatched& dispatched, std::int64_t positions,
                                   const ChunkShape& shape, Lifetime lifetime)
    : bytes_each_(shape.saved_bytes), positions_(positions) {
  const std::int64_t again = dispatched.positions_here - positions;
  if (again > 0) {
    const auto rows = [](const Dispatched::Group& group) { return group.end - group.begin; };
    again_end_ = std::max(std::ranges::max(dispatched.groups(), {}, rows).end, again);
    again_begin_ = again_end_ - again;
  }
  if (positions > 0) bytes_ = arena.allocate(saved_bytes(shape, positions), "saved activations", lifetime);
}

std::byte* SavedActivations::at(std::int64_t position) const {
  if (!any()) return nullptr;
  const std::int64_t skipped = position < again_end_ ? 0 : again_end_ - again_begin_;
  return bytes_.data() + (position - skipped) * bytes_each_;
}

}  // namespace evenkeel
