// A Hopper tile of a product: 128 x 256 of the output, 64 of K at a time. What lies where in shared memory,
// who copies it, and which operands the instructions are given; the kernel and its emulation on the host both
// go by this.
#pragma once

#include "evenkeel/compute/cuda/internal/operand.h"
#include "evenkeel/compute/cuda/internal/products.h"
#include "evenkeel/compute/cuda/internal/quad.h"

namespace evenkeel::cuda::hopper {

inline constexpr int kTileColumns = 256;
inline constexpr int kBoxesA = kTileRows / kBoxColumns;
inline constexpr int kBoxesB = kTileColumns / kBoxColumns;
inline constexpr int kBytesA = kBoxesA * kBoxBytes;
inline constexpr int kBytesB = kBoxesB * kBoxBytes;
inline constexpr int kStageBytes = kBytesA + kBytesB;
inline constexpr int kStages = 4;

// One warpgroup copies, two multiply, each 64 rows of the tile.
inline constexpr int kWarpgroup = 128;
inline constexpr int kMultiplying = 2;
inline constexpr int kThreads = (1 + kMultiplying) * kWarpgroup;
inline constexpr int kWarpgroupRows = kTileRows / kMultiplying;
inline constexpr int kSegments = kTileColumns / kSegmentColumns;
// A row's sums of h . grad_h are kept by tile.
inline constexpr int kDotColumns = kTileColumns;

// A product over rows: the copying threads copy rows of A, bulk copies bring the weights.
template <class Product, bool = Product::kByRows>
struct Loader {
  static constexpr bool kBulk = true;
  using Share = BoxShare<kTileRows, kWarpgroup>;

  std::int32_t row[Share::kCount];

  EVENKEEL_HOST_DEVICE void begin(const Product& product, const Tile& tile, int thread) {
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) row[i] = product.row_of_a(tile, Share::row(thread, i));
  }
  template <class Copy>
  EVENKEEL_HOST_DEVICE void copy(const Product& product, const Tile&, int thread, int block,
                                 const Copy& copy_one) {
    Share::copy(thread, product.a, row, std::int64_t{block} * kDepth, 0, copy_one);
  }
  // copy_box(offset in the stage, row, column) for each box of the weights.
  template <class CopyBox>
  EVENKEEL_HOST_DEVICE static void copy_weights(const Product& product, const Tile& tile, int block,
                                                const CopyBox& copy_box) {
    constexpr int kWide = Product::template kOutputColumns<kTileColumns>;
    const std::int64_t first = std::int64_t{tile.col} * kWide;
    EVENKEEL_UNROLL
    for (int box = 0; box < kBoxesB; ++box) {
      const auto to = static_cast<std::uint32_t>(kBytesA + box * kBoxBytes);
      if constexpr (Product::kMajorB == Major::k)
        copy_box(to, static_cast<int>(product.template weight_row<kTileColumns>(first, box * kDepth)),
                 block * kDepth);
      else
        copy_box(to, block * kDepth, static_cast<int>(first) + box * kBoxColumns);
    }
  }
};

// A product over positions: rows of both operands are copied, each row one of K.
template <class Product>
struct Loader<Product, false> {
  static constexpr bool kBulk = false;
  using Share = BoxShare<kDepth, kWarpgroup>;

  // The rows of the next block, read while this one is copied.
  std::int32_t row_a[Share::kCount], row_b[Share::kCount];

  EVENKEEL_HOST_DEVICE void begin(const Product& product, const Tile& tile, int thread) {
    find(product, tile, thread, 0);
  }
  template <class Copy>
  EVENKEEL_HOST_DEVICE void copy(const Product& product, const Tile& tile, int thread, int block,
                                 const Copy& copy_one) {
    std::int32_t now_a[Share::kCount], now_b[Share::kCount];
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) now_a[i] = row_a[i], now_b[i] = row_b[i];
    find(product, tile, thread, block + 1);
    EVENKEEL_UNROLL
    for (int box = 0; box < kBoxesA; ++box)
      Share::copy(thread, product.a, now_a, tile.row + box * kBoxColumns, box * kBoxBytes, copy_one);
    EVENKEEL_UNROLL
    for (int box = 0; box < kBoxesB; ++box)
      Share::copy(thread, product.b, now_b, std::int64_t{tile.col} * kTileColumns + box * kBoxColumns,
                  kBytesA + box * kBoxBytes, copy_one);
  }

 private:
  EVENKEEL_HOST_DEVICE void find(const Product& product, const Tile& tile, int thread, int block) {
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) {
      const std::int32_t position = product.position_of(tile, block * kDepth + Share::row(thread, i));
      row_a[i] = position == kNoRow ? kNoRow : product.a.row_of(position);
      row_b[i] = position == kNoRow ? kNoRow : product.b.row_of(position);
    }
  }
};

// A last tile with few columns is multiplied half as wide. A gated product's is not: its columns of up lie in
// the second half.
inline constexpr int kNarrowColumns = kTileColumns / 2;

template <class Product>
EVENKEEL_HOST_DEVICE bool is_narrow(const Product& product, const Tile& tile) {
  if (Product::kGated) return false;
  return product.epilogue.width - std::int64_t{tile.col} * kTileColumns <= kNarrowColumns;
}

// Where in a stage the operands of a warpgroup's first instruction begin; depth_step() says how far the next
// ones.
EVENKEEL_HOST_DEVICE constexpr std::uint32_t operand_a(int warpgroup) {
  return static_cast<std::uint32_t>(warpgroup *
                                    kBoxBytes);  // 64 rows of a tile, or its 64 columns: a box either way
}
inline constexpr std::uint32_t kOperandB = kBytesA;

// The row of the tile that a thread of a multiplying warpgroup holds sums of: of each block's two halves.
EVENKEEL_HOST_DEVICE constexpr int row_of(int warpgroup, int thread, int half) {
  return warpgroup * kWarpgroupRows + thread / 32 * 16 + thread % 32 / kQuad + 8 * half;
}

}  // namespace evenkeel::cuda::hopper
