// A tile of a product for any GPU since compute capability 8.0: 128 x 128 of the output, 64 of K at a time,
// computed by eight warps of 32 x 64 each. Defines the layout in shared memory, which thread copies what, and
// what each lane reads for which mma.m16n8k16. The kernel and its emulation on the host both use it.
#pragma once

#include "evenkeel/compute/cuda/internal/products.h"
#include "evenkeel/compute/cuda/internal/quad.h"

namespace evenkeel::cuda::generic {

inline constexpr int kTileColumns = 128;
inline constexpr int kThreads = 256;
inline constexpr int kBoxesA = kTileRows / kBoxColumns;
inline constexpr int kBoxesB = kTileColumns / kBoxColumns;
inline constexpr int kBytesA = kBoxesA * kBoxBytes;
inline constexpr int kStageBytes = kBytesA + kBoxesB * kBoxBytes;
inline constexpr int kStages = 3;

inline constexpr int kWarpsDown = 4;
inline constexpr int kWarpRows = kTileRows / kWarpsDown;
inline constexpr int kWarpColumns = kTileColumns / 2;
inline constexpr int kRowFragments = kWarpRows / 16;          // fragments of 16 rows
inline constexpr int kBlocks = kWarpColumns / kBlockColumns;  // blocks of 8 columns
inline constexpr int kSegments = kWarpColumns / kSegmentColumns;
// A row's dot products h . grad_h are kept per warp.
inline constexpr int kDotColumns = kWarpColumns;

EVENKEEL_HOST_DEVICE constexpr int warp_down(int warp) {
  return warp % kWarpsDown;
}
EVENKEEL_HOST_DEVICE constexpr int warp_across(int warp) {
  return warp / kWarpsDown;
}

// Copies a thread's share of both operands' tiles.
template <class Product, class Copy>
EVENKEEL_HOST_DEVICE void copy_block(const Product& product, const Tile& tile, int thread, int block,
                                     const Copy& copy_one) {
  const std::int64_t depth_begin = std::int64_t{block} * kDepth;
  if constexpr (Product::kByRows) {
    using Share = BoxShare<kTileRows, kThreads>;
    std::int32_t rows[Share::kCount];
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) rows[i] = product.row_of_a(tile, Share::row(thread, i));
    Share::copy(thread, product.a, rows, depth_begin, 0, copy_one);

    const Rows weights = product.weight_rows(tile.group);
    const std::int64_t first = std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns>;
    const auto row_or_none = [&](std::int64_t row) {
      return row < product.matrix_rows() ? static_cast<std::int32_t>(row) : kNoRow;
    };
    if constexpr (Product::kMajorB == Major::k) {
      EVENKEEL_UNROLL
      for (int i = 0; i < Share::kCount; ++i)
        rows[i] = row_or_none(product.template weight_row<kTileColumns>(first, Share::row(thread, i)));
      Share::copy(thread, weights, rows, depth_begin, kBytesA, copy_one);
    } else {
      using Down = BoxShare<kDepth, kThreads>;
      std::int32_t down[Down::kCount];
      EVENKEEL_UNROLL
      for (int i = 0; i < Down::kCount; ++i) down[i] = row_or_none(depth_begin + Down::row(thread, i));
      EVENKEEL_UNROLL
      for (int box = 0; box < kBoxesB; ++box)
        Down::copy(thread, weights, down, first + box * kBoxColumns, kBytesA + box * kBoxBytes, copy_one);
    }
  } else {
    using Down = BoxShare<kDepth, kThreads>;
    std::int32_t a[Down::kCount], b[Down::kCount];
    EVENKEEL_UNROLL
    for (int i = 0; i < Down::kCount; ++i) {
      const std::int32_t position = product.position_of(tile, block * kDepth + Down::row(thread, i));
      a[i] = position == kNoRow ? kNoRow : product.a.row_of(position);
      b[i] = position == kNoRow ? kNoRow : product.b.row_of(position);
    }
    EVENKEEL_UNROLL
    for (int box = 0; box < kBoxesA; ++box)
      Down::copy(thread, product.a, a, tile.row + box * kBoxColumns, box * kBoxBytes, copy_one);
    EVENKEEL_UNROLL
    for (int box = 0; box < kBoxesB; ++box)
      Down::copy(thread, product.b, b, std::int64_t{tile.col} * kTileColumns + box * kBoxColumns,
                 kBytesA + box * kBoxBytes, copy_one);
  }
}

// The line that a lane passes to ldmatrix.x4 to load 16 outer indices from `outer` and 16 of K from `depth`.
// It loads four 8 x 8 matrices in the order that the operand needs. For A, (outer, K) = (0, 0) (8, 0) (0, 8)
// (8, 8); for B, (0, 0) (0, 8) (8, 0) (8, 8). With Major::outer the load transposes the matrices.
template <Major kMajor>
EVENKEEL_HOST_DEVICE constexpr std::uint32_t fragment_line(int lane, int outer, int depth, bool is_a) {
  const int first = lane / 8 % 2 * 8;
  const int second = lane / 16 * 8;
  const int o = outer + (is_a ? first : second);
  const int k = depth + (is_a ? second : first);
  if constexpr (kMajor == Major::k) return line_offset(o + lane % 8, k / kLineNumbers);
  return static_cast<std::uint32_t>(o / kBoxColumns * kBoxBytes) +
         line_offset(k + lane % 8, o % kBoxColumns / kLineNumbers);
}

// The first column of B, within the tile, of the warp's block `block`. In a gated product a warp has 32
// columns of the gate and the same 32 columns of up.
template <bool kGated>
EVENKEEL_HOST_DEVICE constexpr int column_of_b(int warp, int block) {
  if (!kGated) return warp_across(warp) * kWarpColumns + block * kBlockColumns;
  constexpr int kHalf = kBlocks / 2;
  return block / kHalf * (kTileColumns / 2) + warp_across(warp) * kSegmentColumns +
         block % kHalf * kBlockColumns;
}

// The tile's row that holds the first half of a lane's fragment, and a warp's first output column.
EVENKEEL_HOST_DEVICE constexpr int row_of(int warp, int lane, int fragment) {
  return warp_down(warp) * kWarpRows + fragment * 16 + lane / kQuad;
}
template <class Product>
EVENKEEL_HOST_DEVICE std::int64_t first_column(const Tile& tile, int warp) {
  return std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns> +
         warp_across(warp) * (Product::kGated ? kSegmentColumns : kWarpColumns);
}

}  // namespace evenkeel::cuda::generic
