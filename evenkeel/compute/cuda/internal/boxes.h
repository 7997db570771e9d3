// How a tile of an operand lies in shared memory, and which thread copies what of it.
//
// A box is some rows of 128 bytes, 64 numbers of bf16. Its 16-byte lines are swizzled: line c of row r lies
// where line c ^ (r mod 8) would, so that eight rows' lines of one column are in eight different banks, for
// writes along a row and for reads down a column. This is also what bulk tensor copies and wgmma call the
// 128-byte swizzle, where a box begins at a multiple of 1024 bytes.
//
// An operand [outer, K], outer the rows or the columns of the product's output, comes in either of two ways:
//   Major::k      memory is contiguous along K: one box, a row for each outer index, 64 of K.
//   Major::outer  memory is contiguous along outer: boxes of 64 rows of K, 64 outer indices each, one after
//   another.
#pragma once

#include <cstdint>

#include "evenkeel/base/data_type.h"
#include "evenkeel/base/host_device.h"

namespace evenkeel::cuda {

enum class Major { k, outer };

inline constexpr int kDepth = 64;  // of K in a tile of an operand
inline constexpr int kBoxColumns = 64;
inline constexpr int kRowBytes = kBoxColumns * 2;
inline constexpr int kLineBytes = 16;
inline constexpr int kLineNumbers = 8;
inline constexpr int kRowLines = kRowBytes / kLineBytes;
inline constexpr int kBoxBytes = kDepth * kRowBytes;  // of a box of 64 rows

// Where line `line` of row `row` begins, in bytes from the box's beginning.
EVENKEEL_HOST_DEVICE constexpr std::uint32_t line_offset(int row, int line) {
  return static_cast<std::uint32_t>(row * kRowBytes + (line ^ (row & 7)) * kLineBytes);
}

// Rows of `width` numbers in device memory; `index` says which row a position reads, null: its own.
struct Rows {
  const bf16* data = nullptr;
  std::int64_t width = 0;
  const std::int32_t* index = nullptr;

  EVENKEEL_HOST_DEVICE std::int32_t row_of(std::int32_t position) const {
    return index == nullptr ? position : index[position];
  }
};

inline constexpr std::int32_t kNoRow = -1;

// Copies one line of a row, or zeros: copy(offset in shared memory, address, numbers of it that there are:
// 0..8). Without a branch, for this is what a copying thread spends its time on.
template <class Copy>
EVENKEEL_HOST_DEVICE void copy_line(const Rows& rows, std::int32_t row, std::int64_t column, std::uint32_t to,
                                    const Copy& copy) {
  const std::int64_t left = rows.width - column;
  const int beside = left <= 0 ? 0 : (left < kLineNumbers ? static_cast<int>(left) : kLineNumbers);
  const std::int64_t first = row == kNoRow ? 0 : row * rows.width;
  copy(to, rows.data + first + (left <= 0 ? 0 : column), row == kNoRow ? 0 : beside);
}

// The share of `thread` in a box of kRows rows, loaded by kThreads threads: line thread % 8 of every
// (kThreads / 8)-th row.
template <int kRows, int kThreads>
struct BoxShare {
  static constexpr int kStep = kThreads / kRowLines;
  static constexpr int kCount = kRows / kStep;
  static_assert(kThreads % kRowLines == 0 && kRows % kStep == 0);

  EVENKEEL_HOST_DEVICE static constexpr int row(int thread, int i) { return thread / kRowLines + i * kStep; }
  EVENKEEL_HOST_DEVICE static constexpr int line(int thread) { return thread % kRowLines; }

  // `chosen[i]` is the row of memory behind the box's row row(thread, i), or kNoRow.
  template <class Copy>
  EVENKEEL_HOST_DEVICE static void copy(int thread, const Rows& rows, const std::int32_t (&chosen)[kCount],
                                        std::int64_t column, int box, const Copy& copy_one) {
    EVENKEEL_UNROLL
    for (int i = 0; i < kCount; ++i)
      copy_line(rows, chosen[i], column + line(thread) * kLineNumbers,
                static_cast<std::uint32_t>(box) + line_offset(row(thread, i), line(thread)), copy_one);
  }
};

}  // namespace evenkeel::cuda
