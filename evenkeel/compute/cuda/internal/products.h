// The products of a call, used by the kernels and by their emulation on the host: operands, tiles, epilogue.
#pragma once

#include <algorithm>

#include "evenkeel/compute/cuda/internal/boxes.h"
#include "evenkeel/compute/cuda/internal/epilogues.h"

namespace evenkeel::cuda {

// One of an expert's matrices.
enum class WeightMatrix { gate_up, down };

EVENKEEL_HOST_DEVICE inline const bf16* matrix_of(const ExpertWeights& weights, WeightMatrix which) {
  return static_cast<const bf16*>(which == WeightMatrix::down ? weights.down : weights.gate_up);
}

// The order of an operand's rows: found through an index, or consecutive by position, so that bulk copies
// work.
enum class Order { indexed, by_position };

// out[position, :] = epilogue(a[position, :] . B), one row per position. The product is a . W^T for weights
// [columns, depth] (Major::k), and a . W for weights [depth, columns] (Major::outer). For a gated epilogue
// the weights have 2 * `columns` rows, and the epilogue gets each column's sums from both halves.
template <class TheEpilogue, Major kWeightMajor, Order kOrder>
struct RowProduct {
  using Epilogue = TheEpilogue;
  static constexpr bool kByRows = true;
  static constexpr Major kMajorA = Major::k;
  static constexpr Major kMajorB = kWeightMajor;
  static constexpr Order kOrderA = kOrder;
  static constexpr bool kGated = Epilogue::kGated;

  Rows a;
  std::int64_t max_positions = 0;
  const ExpertWeights* weights = nullptr;
  WeightMatrix matrix = WeightMatrix::gate_up;
  std::int64_t depth = 0;
  std::int64_t columns = 0;
  Epilogue epilogue;

  // Rows and columns of the weight matrix in memory.
  EVENKEEL_HOST_DEVICE std::int64_t matrix_rows() const {
    return kMajorB == Major::outer ? depth : (kGated ? 2 * columns : columns);
  }
  EVENKEEL_HOST_DEVICE std::int64_t matrix_columns() const {
    return kMajorB == Major::outer ? columns : depth;
  }
  EVENKEEL_HOST_DEVICE Rows rows_by_position() const { return a; }
  EVENKEEL_HOST_DEVICE Rows weight_rows(int group) const {
    return {matrix_of(weights[group], matrix), matrix_columns(), nullptr};
  }

  // Output columns of a tile that is kTileColumns wide.
  template <int kTileColumns>
  static constexpr int kOutputColumns = kGated ? kTileColumns / 2 : kTileColumns;

  template <int kTileColumns>
  EVENKEEL_HOST_DEVICE Tile tile(const TileSchedule& schedule, const std::int32_t* row_tiles,
                                 std::int32_t index) const {
    constexpr int kWide = kOutputColumns<kTileColumns>;
    return row_tile(schedule, row_tiles, index, static_cast<int>((columns + kWide - 1) / kWide));
  }
  EVENKEEL_HOST_DEVICE std::int64_t depth_of(const Tile&) const { return depth; }
  EVENKEEL_HOST_DEVICE bool has_row(const Tile& tile, int row) const { return row < tile.rows; }
  // The row in memory that row `row` of A's tile is read from, or kNoRow.
  EVENKEEL_HOST_DEVICE std::int32_t row_of_a(const Tile& tile, int row) const {
    return row < tile.rows ? a.row_of(tile.begin + row) : kNoRow;
  }
  // For Major::k: the row of the weights that row `row` of B's tile is read from. The tile begins at column
  // `first` of the output.
  template <int kTileColumns>
  EVENKEEL_HOST_DEVICE std::int64_t weight_row(std::int64_t first, int row) const {
    if (!kGated || row < kTileColumns / 2) return first + row;
    return columns + first + (row - kTileColumns / 2);
  }
};

// Adds a^T . b over a group's positions to the gradient (of type T) of the group's matrix. Both operands have
// one row per position; exactly one of them is in the order of positions.
template <class T, Order kA, Order kB>
struct WeightProduct {
  static_assert(kA != kB);

  using Epilogue = WeightGradientEpilogue<T>;
  static constexpr bool kByRows = false;
  static constexpr Major kMajorA = Major::outer;
  static constexpr Major kMajorB = Major::outer;
  static constexpr Order kOrderA = kA;
  static constexpr bool kGated = false;

  Rows a;  // one column per row of the matrix
  Rows b;  // one column per column of the matrix
  std::int64_t max_positions = 0;
  Epilogue epilogue;

  EVENKEEL_HOST_DEVICE Rows rows_by_position() const { return kA == Order::by_position ? a : b; }

  template <int kTileColumns>
  static constexpr int kOutputColumns = kTileColumns;

  template <int kTileColumns>
  EVENKEEL_HOST_DEVICE Tile tile(const TileSchedule& schedule, const std::int32_t*,
                                 std::int32_t index) const {
    return matrix_tile(schedule, index, static_cast<int>((a.width + kTileRows - 1) / kTileRows),
                       static_cast<int>((b.width + kTileColumns - 1) / kTileColumns));
  }
  EVENKEEL_HOST_DEVICE std::int64_t depth_of(const Tile& tile) const { return tile.rows; }
  EVENKEEL_HOST_DEVICE bool has_row(const Tile& tile, int row) const { return tile.row + row < a.width; }
  // The position of row `k` of the tile's K, or kNoRow.
  EVENKEEL_HOST_DEVICE std::int32_t position_of(const Tile& tile, int k) const {
    return k < tile.rows ? tile.begin + k : kNoRow;
  }
};

template <class Product>
EVENKEEL_HOST_DEVICE int depth_blocks(const Product& product, const Tile& tile) {
  return static_cast<int>((product.depth_of(tile) + kDepth - 1) / kDepth);
}

}  // namespace evenkeel::cuda
