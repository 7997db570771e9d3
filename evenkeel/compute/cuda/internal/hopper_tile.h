// A Hopper tile of a product: 128 x 256 of the output, 64 of K at a time. Defines the layout in shared
// memory, which thread copies what, and the operands of the instructions. The kernel and its emulation on the
// host both use it.
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

// One warpgroup copies; two multiply, 64 rows of the tile each.
inline constexpr int kWarpgroup = 128;
inline constexpr int kMultiplying = 2;
inline constexpr int kThreads = (1 + kMultiplying) * kWarpgroup;
inline constexpr int kWarpgroupRows = kTileRows / kMultiplying;
// A row's dot products h . grad_h are kept per tile.
inline constexpr int kDotColumns = kTileColumns;

// The width of the last tile of a row of tiles if few columns are left for it.
inline constexpr int kNarrowColumns = kTileColumns / 2;

template <class Product>
EVENKEEL_HOST_DEVICE bool is_narrow(const Product& product, const Tile& tile) {
  const std::int64_t first = std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns>;
  return product.epilogue.width - first <= Product::template kOutputColumns<kNarrowColumns>;
}

// A Loader does the work of the copying threads for a tile's blocks of K. If kLines, each thread copies its
// part of the lines; boxes are copied in bulk:
//   begin(product, tile, thread)
//   copy_lines(product, tile, thread, block, copy_one)   copy_one(offset in the stage, address, numbers)
//   bulk_bytes(product, tile, block)                     of all boxes
//   copy_boxes(product, tile, block, copy_box)           copy_box(source, offset in the stage, row, column)
enum class BoxSource { weights, rows_by_position };

// The lines of a few rows that one thread copies; whole lines only. Precomputes what is the same for all
// blocks of K or all boxes of a row, because instructions are the bottleneck of copying threads.
template <class Share>
struct RowLines {
  const std::byte* rows = nullptr;
  std::int64_t line[Share::kCount];  // byte offset of the thread's line in each row's first box
  std::uint32_t there = 0;           // one bit per row: whether it exists
  int left = 0;                      // numbers from the line's begin to the row's end

  EVENKEEL_HOST_DEVICE void find(const Rows& from, const std::int32_t (&chosen)[Share::kCount],
                                 std::int64_t column, int thread) {
    const std::int64_t first = column + Share::line(thread) * kLineNumbers;
    rows = reinterpret_cast<const std::byte*>(from.data);
    left = static_cast<int>(from.width - first);
    there = 0;
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) {
      const bool is_there = chosen[i] != kNoRow;
      line[i] = ((is_there ? chosen[i] * from.width : 0) + first) * std::int64_t{sizeof(bf16)};
      there |= (is_there ? 1u : 0u) << i;
    }
  }
  // Copies the lines that are `columns` further along the rows.
  template <class Copy>
  EVENKEEL_HOST_DEVICE void copy(int thread, int columns, int box, const Copy& copy_one) const {
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i)
      copy_one(static_cast<std::uint32_t>(box) + line_offset(Share::row(thread, i), Share::line(thread)),
               reinterpret_cast<const bf16*>(rows + line[i] + columns * std::int64_t{sizeof(bf16)}),
               (there >> i & 1) != 0 && columns < left ? kLineNumbers : 0);
  }
};

// The loader of a product over rows. It copies A by lines if A's rows are indexed, otherwise by boxes, and
// the weights by boxes. It may also copy rows of another group or past the end: they do not affect this
// group's output rows.
template <class Product, bool = Product::kByRows>
struct Loader {
  static constexpr bool kLines = Product::kOrderA == Order::indexed;
  using Share = BoxShare<kTileRows, kWarpgroup>;

  RowLines<Share> lines;

  EVENKEEL_HOST_DEVICE void begin(const Product& product, const Tile& tile, int thread) {
    if constexpr (kLines) {
      std::int32_t chosen[Share::kCount];
      EVENKEEL_UNROLL
      for (int i = 0; i < Share::kCount; ++i) chosen[i] = product.row_of_a(tile, Share::row(thread, i));
      lines.find(product.a, chosen, 0, thread);
    }
  }
  template <class Copy>
  EVENKEEL_HOST_DEVICE void copy_lines(const Product&, const Tile&, int thread, int block,
                                       const Copy& copy_one) {
    if constexpr (kLines) lines.copy(thread, block * kDepth, 0, copy_one);
  }
  EVENKEEL_HOST_DEVICE static int bulk_bytes(const Product& product, const Tile& tile, int) {
    return (is_narrow(product, tile) ? kBytesB / 2 : kBytesB) + (kLines ? 0 : kBytesA);
  }
  template <class CopyBox>
  EVENKEEL_HOST_DEVICE static void copy_boxes(const Product& product, const Tile& tile, int block,
                                              const CopyBox& copy_box) {
    if (is_narrow(product, tile))
      copy_weights<kNarrowColumns>(product, tile, block, copy_box);
    else
      copy_weights<kTileColumns>(product, tile, block, copy_box);
    EVENKEEL_UNROLL
    for (int box = 0; box < (kLines ? 0 : kBoxesA); ++box)
      copy_box(BoxSource::rows_by_position, static_cast<std::uint32_t>(box * kBoxBytes),
               tile.begin + box * kDepth, block * kDepth);
  }

 private:
  template <int kColumns, class CopyBox>
  EVENKEEL_HOST_DEVICE static void copy_weights(const Product& product, const Tile& tile, int block,
                                                const CopyBox& copy_box) {
    const std::int64_t first = std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns>;
    EVENKEEL_UNROLL
    for (int box = 0; box < kColumns / kBoxColumns; ++box) {
      const auto to = static_cast<std::uint32_t>(kBytesA + box * kBoxBytes);
      if constexpr (Product::kMajorB == Major::k)
        copy_box(BoxSource::weights, to,
                 static_cast<int>(product.template weight_row<kColumns>(first, box * kDepth)),
                 block * kDepth);
      else
        copy_box(BoxSource::weights, to, block * kDepth, static_cast<int>(first) + box * kBoxColumns);
    }
  }
};

// The loader of a product over positions, in which K counts positions. It copies the indexed operand by lines
// and the other by boxes. A last block that extends beyond the group is copied by lines only, so that zeros
// follow the group's end.
template <class Product>
struct Loader<Product, false> {
  static constexpr bool kLines = true;
  static constexpr bool kBulkA = Product::kOrderA == Order::by_position;
  using Share = BoxShare<kDepth, kWarpgroup>;

  // The indexed operand's rows for the next block, read while the current one is copied.
  std::int32_t row[Share::kCount];

  EVENKEEL_HOST_DEVICE void begin(const Product& product, const Tile& tile, int thread) {
    find(product, tile, thread, 0);
  }
  template <class Copy>
  EVENKEEL_HOST_DEVICE void copy_lines(const Product& product, const Tile& tile, int thread, int block,
                                       const Copy& copy_one) {
    std::int32_t now[Share::kCount];
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) now[i] = row[i];
    find(product, tile, thread, block + 1);
    copy_operand<!kBulkA>(product, tile, thread, now, copy_one);
    if (is_whole(tile, block)) return;
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i)
      now[i] = product.position_of(tile, block * kDepth + Share::row(thread, i));
    copy_operand<kBulkA>(product, tile, thread, now, copy_one);
  }
  EVENKEEL_HOST_DEVICE static int bulk_bytes(const Product&, const Tile& tile, int block) {
    return is_whole(tile, block) ? (kBulkA ? kBytesA : kBytesB) : 0;
  }
  template <class CopyBox>
  EVENKEEL_HOST_DEVICE static void copy_boxes(const Product&, const Tile& tile, int block,
                                              const CopyBox& copy_box) {
    if (!is_whole(tile, block)) return;
    EVENKEEL_UNROLL
    for (int box = 0; box < (kBulkA ? kBoxesA : kBoxesB); ++box)
      copy_box(BoxSource::rows_by_position,
               static_cast<std::uint32_t>((kBulkA ? 0 : kBytesA) + box * kBoxBytes),
               tile.begin + block * kDepth, first_column<kBulkA>(tile) + box * kBoxColumns);
  }

 private:
  EVENKEEL_HOST_DEVICE static bool is_whole(const Tile& tile, int block) {
    return (block + 1) * kDepth <= tile.rows;
  }
  template <bool kOfA>
  EVENKEEL_HOST_DEVICE static int first_column(const Tile& tile) {
    return kOfA ? tile.row : tile.col * kTileColumns;
  }
  template <bool kOfA, class Copy>
  EVENKEEL_HOST_DEVICE static void copy_operand(const Product& product, const Tile& tile, int thread,
                                                const std::int32_t (&rows)[Share::kCount],
                                                const Copy& copy_one) {
    RowLines<Share> lines;
    lines.find(kOfA ? product.a : product.b, rows, first_column<kOfA>(tile), thread);
    EVENKEEL_UNROLL
    for (int box = 0; box < (kOfA ? kBoxesA : kBoxesB); ++box)
      lines.copy(thread, box * kBoxColumns, (kOfA ? 0 : kBytesA) + box * kBoxBytes, copy_one);
  }
  EVENKEEL_HOST_DEVICE void find(const Product& product, const Tile& tile, int thread, int block) {
    EVENKEEL_UNROLL
    for (int i = 0; i < Share::kCount; ++i) {
      const std::int32_t position = product.position_of(tile, block * kDepth + Share::row(thread, i));
      row[i] = position == kNoRow ? kNoRow : (kBulkA ? product.b : product.a).row_of(position);
    }
  }
};

// Where in a stage the operands of a warpgroup's first instruction begin; depth_step() is the distance to the
// next instruction's operands.
EVENKEEL_HOST_DEVICE constexpr std::uint32_t operand_a(int warpgroup) {
  return static_cast<std::uint32_t>(warpgroup * kBoxBytes);  // 64 rows or 64 columns of a tile are one box
}
inline constexpr std::uint32_t kOperandB = kBytesA;

// A thread of a multiplying warpgroup holds sums of two rows of the tile. Returns the row of `half` 0 or 1.
EVENKEEL_HOST_DEVICE constexpr int row_of(int warpgroup, int thread, int half) {
  return warpgroup * kWarpgroupRows + thread / 32 * 16 + thread % 32 / kQuad + 8 * half;
}

}  // namespace evenkeel::cuda::hopper
