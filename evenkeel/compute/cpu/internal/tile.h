// A group's rows are computed a tile at a time, in a workspace cut into pieces.
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

// Positions [begin, begin + rows) of a batch, at most a tile.
struct Span {
  std::int64_t begin;
  std::int64_t rows;
};

// Cuts a group into tiles of about the same size, so that none is a small remainder. All but the last are of
// whole vector-unit rows, so that the last alone is padded.
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

// Memory that products of a row alone want besides it: their results, a block of columns at a time, and
// scratch. It is on the stack, since it does not grow with the number of rows.
struct RowAlone {
  alignas(64) std::array<float, RowLadder::kWidestBlock> gate, up;
  alignas(64) std::array<std::byte, std::size_t{72} << 10> scratch;

  // Whether this is enough for a tile of so many rows whose products want so much scratch.
  static constexpr bool is_enough(std::int64_t rows, std::int64_t scratch_bytes) {
    return rows == 1 && scratch_bytes <= static_cast<std::int64_t>(sizeof(scratch));
  }
};

// How tall a tile can be, and what it takes: one row, and whole vectors of rows that all ladders have
// products for.
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
  // The tallest that so many bytes are enough for; they must be for the least.
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

// Where the up half of a row of pre-activations begins.
inline std::int64_t up_begin(const ExpertShape& shape) {
  return is_gated(shape.activation) ? shape.intermediate : 0;
}

// Behind all saved pre-activations: the products behind weight gradients take whole vectors of rows, of which
// the last may be beyond a group's.
inline std::int64_t margin_bytes(const ExpertShape& shape) {
  return (kVectorRows - 1) * shape.gate_up_rows() * bytes_of(shape.type);
}

// Where the pre-activations of a tile's rows are saved; null if they are not.
inline std::byte* saved_of(const ExpertShape& shape, const ExpertGroup& group, Span span) {
  if (group.saved == nullptr) return nullptr;
  return group.saved + (span.begin - group.begin) * shape.gate_up_rows() * bytes_of(shape.type);
}

}  // namespace evenkeel::internal
