// Cuts a group's rows into tiles, which are computed one at a time, and plans the workspace for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "evenkeel/base/carver.h"
#include "evenkeel/base/check.h"
#include "evenkeel/compute/cpu/internal/dnnl.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

using Carver = AlignedCarver<64>;

// Positions [begin, begin + rows) of a batch, at most one tile.
struct Span {
  std::int64_t begin;
  std::int64_t rows;
};

// Cuts a group into tiles of about the same size, so that none is a small remainder. All but the last have a
// multiple of kVectorRows rows, so only the last is padded.
template <class Body>
void for_each_tile(const ExpertGroup& group, std::int64_t most, const Body& body) {
  const std::int64_t rows = group.end - group.begin;
  if (rows == 0) return;
  EVENKEEL_CHECK(most > 0);
  const std::int64_t tiles = (rows + most - 1) / most;
  const std::int64_t equal = (rows + tiles - 1) / tiles;
  const std::int64_t height = std::min(most, whole_vector_rows(equal));
  for (std::int64_t begin = group.begin; begin < group.end; begin += height)
    body(Span{begin, std::min(height, group.end - begin)});
}

// Memory for the products of a single row: their results, one block of columns at a time, and scratch. It is
// on the stack, since its size is fixed.
struct SingleRowScratch {
  alignas(64) std::array<float, RowLadder::kWidestBlock> gate, up;
  alignas(64) std::array<std::byte, std::size_t{72} << 10> scratch;

  // Whether this suffices for a tile of `rows` rows whose products need `scratch_bytes`.
  static constexpr bool fits(std::int64_t rows, std::int64_t scratch_bytes) {
    return rows == 1 && scratch_bytes <= static_cast<std::int64_t>(sizeof(scratch));
  }
};

// The possible tile heights and their bytes: one row, and those multiples of kVectorRows for which every
// ladder has products.
class TileHeights {
 public:
  template <class Bytes>
  TileHeights(std::initializer_list<const RowLadder*> ladders, std::int64_t tallest, const Bytes& bytes_of) {
    const auto add = [&](std::int64_t rows) {
      if (std::ranges::all_of(ladders, [&](const RowLadder* ladder) { return ladder->max_rows(rows) > 0; }))
        heights_.push_back({rows, bytes_of(rows)});
    };
    add(1);
    for (std::int64_t rows = kVectorRows; rows <= tallest; rows += kVectorRows) add(rows);
  }
  std::int64_t least_bytes() const { return heights_.front().bytes; }
  std::int64_t most_bytes() const { return heights_.back().bytes; }
  // The tallest height that fits in `bytes`, which must be at least least_bytes().
  std::int64_t rows_in(std::int64_t bytes) const {
    const auto beyond = std::ranges::upper_bound(heights_, bytes, {}, &Height::bytes);
    EVENKEEL_CHECK(beyond != heights_.begin());
    return std::prev(beyond)->rows;
  }

 private:
  struct Height {
    std::int64_t rows;
    std::int64_t bytes;
  };
  std::vector<Height> heights_;  // ascending
};

// Space for f32 biases in prepared weights.
inline std::int64_t bias_bytes(const ExpertShape& shape, std::int64_t count) {
  return shape.biases ? whole_lines(count * std::int64_t{sizeof(float)}) : 0;
}

// The index at which the up half of a row of pre-activations begins.
inline std::int64_t up_begin(const ExpertShape& shape) {
  return is_gated(shape.activation) ? shape.intermediate : 0;
}

// Margin after all saved pre-activations. Weight gradients multiply whole multiples of kVectorRows rows, so
// they may read beyond a group's last row.
inline std::int64_t margin_bytes(const ExpertShape& shape) {
  return (kVectorRows - 1) * shape.gate_up_rows() * bytes_of(shape.type);
}

// The address of the saved pre-activations of a tile's rows; null if they are not saved.
inline std::byte* saved_of(const ExpertShape& shape, const ExpertGroup& group, Span span) {
  if (group.saved == nullptr) return nullptr;
  return group.saved + (span.begin - group.begin) * shape.gate_up_rows() * bytes_of(shape.type);
}

}  // namespace evenkeel::internal
