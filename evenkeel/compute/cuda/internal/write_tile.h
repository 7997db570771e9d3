// Passes a thread's sums to its epilogue.
#pragma once

#include "evenkeel/compute/cuda/internal/products.h"
#include "evenkeel/compute/cuda/internal/quad.h"

namespace evenkeel::cuda {

// Gets a lane's eight columns of one of its two rows from the sums of a segment.
template <int kNumbers, class Exchange>
EVENKEEL_ALWAYS_INLINE Eight columns_of(const float (&sums)[kNumbers], int segment, int half, int lane,
                                        const Exchange& exchange) {
  float parity[2][kQuad];
  EVENKEEL_UNROLL
  for (int odd = 0; odd < 2; ++odd) {
    EVENKEEL_UNROLL
    for (int block = 0; block < kQuad; ++block)
      parity[odd][block] = sums[segment * kSegmentNumbers + block * kBlockNumbers + 2 * half + odd];
    transpose_round<1>(parity[odd], lane, exchange);
    transpose_round<2>(parity[odd], lane, exchange);
  }
  return interleave(parity[0], parity[1]);
}

// One row of a lane: the epilogue's data for the row, and which columns the lane handles.
template <class Product>
struct LaneRow {
  typename Product::Epilogue::Row row;
  std::int64_t first = 0;  // the lane's first column in segment 0; beyond the width if the row does not exist

  EVENKEEL_ALWAYS_INLINE static LaneRow at(const Product& product, const Tile& tile, int row,
                                           std::int64_t first, int lane) {
    if (!product.has_row(tile, row)) return {{}, product.epilogue.width};
    return {product.epilogue.row(tile, row), first + lane % kQuad * kEight};
  }
  EVENKEEL_ALWAYS_INLINE std::int64_t column(int segment) const { return first + segment * kSegmentColumns; }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE void read(const Product& product, int segment,
                                   typename Product::Epilogue::Read& to) const {
    const int count = columns_left(product.epilogue.width, column(segment));
    if (count > 0) to = product.epilogue.template read<kLines>(row, column(segment), count);
  }
  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Product& product, int segment, const Eight& gate, const Eight& up,
                                     const typename Product::Epilogue::Read& read) const {
    const int count = columns_left(product.epilogue.width, column(segment));
    if (count <= 0) return 0;
    return product.epilogue.template write<kLines>(row, column(segment), count, gate, up, read);
  }
};

// Writes segment kSegment of a row and all later segments; `reads` holds the next kAhead reads. Recursive
// because the compiler would not unroll a loop of this length, and would keep the sums in memory.
template <Lines kLines, int kSegment, int kShown, int kHalf, class Product, int kAhead, int kNumbers,
          class Exchange>
EVENKEEL_ALWAYS_INLINE float write_segments(const Product& product, const LaneRow<Product>& row, int lane,
                                            const float (&sums)[kNumbers], const Exchange& exchange,
                                            typename Product::Epilogue::Read (&reads)[kAhead]) {
  const auto read = reads[kSegment % kAhead];
  if constexpr (kSegment + kAhead < kShown)
    row.template read<kLines>(product, kSegment + kAhead, reads[kSegment % kAhead]);
  const Eight values = columns_of(sums, kSegment, kHalf, lane, exchange);
  Eight up = values;
  if constexpr (Product::kGated) up = columns_of(sums, kSegment + kShown, kHalf, lane, exchange);
  float dot = row.template write<kLines>(product, kSegment, values, up, read);
  if constexpr (kSegment + 1 < kShown)
    dot += write_segments<kLines, kSegment + 1, kShown, kHalf>(product, row, lane, sums, exchange, reads);
  return dot;
}

// Writes one row of a lane: kSegments segments, whose second half belongs to up if the product is gated.
// Returns the lane's part of the row's dot product. All lanes of a warp must call it together.
template <Lines kLines, int kSegments, int kHalf, class Product, int kNumbers, class Exchange>
EVENKEEL_ALWAYS_INLINE float write_row(const Product& product, const LaneRow<Product>& row, int lane,
                                       const float (&sums)[kNumbers], const Exchange& exchange) {
  static_assert(kNumbers >= kSegments * kSegmentNumbers);
  constexpr int kShown = Product::kGated ? kSegments / 2 : kSegments;
  constexpr int kAhead = Product::Epilogue::kAhead < kShown ? Product::Epilogue::kAhead : kShown;
  typename Product::Epilogue::Read reads[kAhead] = {};
  EVENKEEL_UNROLL
  for (int segment = 0; segment < kAhead; ++segment)
    row.template read<kLines>(product, segment, reads[segment]);
  return write_segments<kLines, 0, kShown, kHalf>(product, row, lane, sums, exchange, reads);
}

// Stores a row's dot product over the columns from `first`, if these columns exist.
template <int kDotColumns, class Product>
EVENKEEL_ALWAYS_INLINE void keep_dot(const Product& product, const Tile& tile, int row, std::int64_t first,
                                     float dot) {
  if (product.has_row(tile, row) && first < product.columns)
    product.epilogue.keep_dot(tile, row, static_cast<int>(first / kDotColumns), dot);
}

#if defined(__CUDACC__)

// Exchanges numbers between a warp's lanes.
struct ShuffleXor {
  __device__ __forceinline__ float operator()(float value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
};

// A lane's two rows (eight apart) of a tile whose columns begin at `first`.
template <class Product>
struct LaneRows {
  LaneRow<Product> half[2];

  __device__ __forceinline__ static LaneRows at(const Product& product, const Tile& tile, int row,
                                                std::int64_t first, int lane) {
    return {{LaneRow<Product>::at(product, tile, row, first, lane),
             LaneRow<Product>::at(product, tile, row + 8, first, lane)}};
  }
};

// Writes one of a lane's two rows, and its dot product if the epilogue needs it. `row` is the row of half 0.
template <Lines kLines, int kSegments, int kDotColumns, int kHalf, class Product, int kNumbers>
__device__ __forceinline__ void finish_row(const Product& product, const Tile& tile, int row,
                                           std::int64_t first, int lane, const LaneRows<Product>& rows,
                                           const float (&sums)[kNumbers]) {
  const ShuffleXor exchange;
  float dot = write_row<kLines, kSegments, kHalf>(product, rows.half[kHalf], lane, sums, exchange);
  if constexpr (Product::Epilogue::kDots) {
    dot += exchange(dot, 1);
    dot += exchange(dot, 2);
    if (lane % kQuad == 0) keep_dot<kDotColumns>(product, tile, row + 8 * kHalf, first, dot);
  }
}

template <Lines kLines, int kSegments, int kDotColumns, class Product, int kNumbers>
__device__ __forceinline__ void write_rows(const Product& product, const Tile& tile, int row,
                                           std::int64_t first, int lane, const LaneRows<Product>& rows,
                                           const float (&sums)[kNumbers]) {
  finish_row<kLines, kSegments, kDotColumns, 0>(product, tile, row, first, lane, rows, sums);
  finish_row<kLines, kSegments, kDotColumns, 1>(product, tile, row, first, lane, rows, sums);
}

#endif  // __CUDACC__

}  // namespace evenkeel::cuda
