// From a thread's sums to its epilogue's calls.
#pragma once

#include "evenkeel/compute/cuda/internal/products.h"
#include "evenkeel/compute/cuda/internal/quad.h"

namespace evenkeel::cuda {

// Eight columns of one of a lane's two rows, out of a segment's sums.
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

// Segment kSegment of a row and those after it. Recursion, not a loop: a loop of this length is not unrolled,
// and then the sums are in memory.
template <int kSegment, int kShown, int kHalf, class Product, int kNumbers, class Exchange>
EVENKEEL_ALWAYS_INLINE float write_segments(const Product& product, const Tile& tile, int row,
                                            std::int64_t first, int lane, const float (&sums)[kNumbers],
                                            const Exchange& exchange) {
  const Eight values = columns_of(sums, kSegment, kHalf, lane, exchange);
  Eight up = values;
  if constexpr (Product::kGated) up = columns_of(sums, kSegment + kShown, kHalf, lane, exchange);
  const std::int64_t column = first + kSegment * kSegmentColumns + lane % kQuad * kEight;
  float dot = 0;
  if (product.has_row(tile, row)) dot = product.epilogue.apply(tile, row, column, values, up);
  if constexpr (kSegment + 1 < kShown)
    dot += write_segments<kSegment + 1, kShown, kHalf>(product, tile, row, first, lane, sums, exchange);
  return dot;
}

// One row of a lane: kSegments segments from column `first` of the output on; for a gated product the second
// half of the segments is up's. Returns the lane's part of the row's dot product. All lanes of a warp call
// this together.
template <int kSegments, int kHalf, class Product, int kNumbers, class Exchange>
EVENKEEL_ALWAYS_INLINE float write_row(const Product& product, const Tile& tile, int row, std::int64_t first,
                                       int lane, const float (&sums)[kNumbers], const Exchange& exchange) {
  static_assert(kNumbers == kSegments * kSegmentNumbers);
  return write_segments < 0, Product::kGated ? kSegments / 2 : kSegments,
         kHalf > (product, tile, row, first, lane, sums, exchange);
}

// Keeps a row's dot product over the columns from `first` on, as far as there are such columns.
template <int kDotColumns, class Product>
EVENKEEL_ALWAYS_INLINE void keep_dot(const Product& product, const Tile& tile, int row, std::int64_t first,
                                     float dot) {
  if (product.has_row(tile, row) && first < product.columns)
    product.epilogue.keep_dot(tile, row, static_cast<int>(first / kDotColumns), dot);
}

#if defined(__CUDACC__)

// What a warp's lanes show each other.
struct ShuffleXor {
  __device__ __forceinline__ float operator()(float value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
};

// One of a lane's two rows, and its dot product where the epilogue wants this. `row` is that of the first
// half.
template <int kSegments, int kDotColumns, int kHalf, class Product, int kNumbers>
__device__ __forceinline__ void finish_row(const Product& product, const Tile& tile, int row,
                                           std::int64_t first, int lane, const float (&sums)[kNumbers]) {
  const ShuffleXor exchange;
  float dot = write_row<kSegments, kHalf>(product, tile, row + 8 * kHalf, first, lane, sums, exchange);
  if constexpr (Product::Epilogue::kDots) {
    dot += exchange(dot, 1);
    dot += exchange(dot, 2);
    if (lane % kQuad == 0) keep_dot<kDotColumns>(product, tile, row + 8 * kHalf, first, dot);
  }
}

template <int kSegments, int kDotColumns, class Product, int kNumbers>
__device__ __forceinline__ void write_rows(const Product& product, const Tile& tile, int row,
                                           std::int64_t first, int lane, const float (&sums)[kNumbers]) {
  finish_row<kSegments, kDotColumns, 0>(product, tile, row, first, lane, sums);
  finish_row<kSegments, kDotColumns, 1>(product, tile, row, first, lane, sums);
}

#endif  // __CUDACC__

}  // namespace evenkeel::cuda
