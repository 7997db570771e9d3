// The layout of an operand's tile in shared memory, and which thread copies which part.
//
// A box consists of rows of 128 bytes, which hold 64 bf16 numbers. Its 16-byte lines are swizzled: line c of
// row r is stored in the place of line c ^ (r mod 8). So the lines of one column in eight rows are in eight
// different banks, both for writes along a row and for reads down a column. If a box begins at a multiple of
// 1024 bytes, this is the 128-byte swizzle of bulk tensor copies and wgmma.
//
// An operand is [outer, K], where outer is the rows or columns of the product's output. It has two layouts:
//   Major::k      memory is contiguous along K: one box, with one row per outer index, of 64 elements of K.
//   Major::outer  memory is contiguous along outer: consecutive boxes, each with one row per index of K (64
//                 rows), of 64 outer indices.
#pragma once

#include <cstdint>

#include "evenkeel/base/data_type.h"
#include "evenkeel/base/host_device.h"

namespace evenkeel::cuda {

enum class Major { k, outer };

inline constexpr int kDepth = 64;  // elements of K in an operand's tile
inline constexpr int kBoxColumns = 64;
inline constexpr int kRowBytes = kBoxColumns * 2;
inline constexpr int kLineBytes = 16;
inline constexpr int kLineNumbers = 8;
inline constexpr int kRowLines = kRowBytes / kLineBytes;
inline constexpr int kBoxBytes = kDepth * kRowBytes;  // bytes of a box with 64 rows

// Byte offset of line `line` of row `row` in its box.
EVENKEEL_HOST_DEVICE constexpr std::uint32_t line_offset(int row, int line) {
  return static_cast<std::uint32_t>(row * kRowBytes + (line ^ (row & 7)) * kLineBytes);
}

// Rows of `width` numbers in device memory. A position reads row index[position], or row `position` if
// `index` is null.
struct Rows {
  const bf16* data = nullptr;
  std::int64_t width = 0;
  const std::int32_t* index = nullptr;

  EVENKEEL_HOST_DEVICE std::int32_t row_of(std::int32_t position) const {
    return index == nullptr ? position : index[position];
  }
};

inline constexpr std::int32_t kNoRow = -1;

// Copies one line of a row, or zeros: copy(offset in shared memory, address, how many of its 8 numbers
// exist). Has no branch, because copying threads spend their time here.
template <class Copy>
EVENKEEL_HOST_DEVICE void copy_line(const Rows& rows, std::int32_t row, std::int64_t column, std::uint32_t to,
                                    const Copy& copy) {
  const std::int64_t left = rows.width - column;
  const int beside = left <= 0 ? 0 : (left < kLineNumbers ? static_cast<int>(left) : kLineNumbers);
  const std::int64_t first = row == kNoRow ? 0 : row * rows.width;
  copy(to, rows.data + first + (left <= 0 ? 0 : column), row == kNoRow ? 0 : beside);
}

// The part of a box of kRows rows that `thread` of kThreads loads: line thread % 8 of every (kThreads / 8)-th
// row.
template <int kRows, int kThreads>
struct BoxShare {
  static constexpr int kStep = kThreads / kRowLines;
  static constexpr int kCount = kRows / kStep;
  static_assert(kThreads % kRowLines == 0 && kRows % kStep == 0);

  EVENKEEL_HOST_DEVICE static constexpr int row(int thread, int i) { return thread / kRowLines + i * kStep; }
  EVENKEEL_HOST_DEVICE static constexpr int line(int thread) { return thread % kRowLines; }

  // `chosen[i]` is the row in memory that becomes row row(thread, i) of the box; kNoRow if there is none.
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
