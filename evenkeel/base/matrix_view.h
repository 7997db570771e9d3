// Views of row-major matrices whose element type is known at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenkeel/base/data_type.h"

namespace evenkeel {

// [rows, columns] elements of `type`, one row behind the other.
struct ConstRows {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DataType type = DataType::f32;
};

struct Rows {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DataType type = DataType::f32;

  operator ConstRows() const { return {data, rows, columns, type}; }  // NOLINT: a view of the same rows
};

// Rows numbered as one table but stored in two memories. Row own_begin + i is row own_index[i] of the
// caller's table `own`, for every index i of own_index. All other rows are one after another in `rest`.
template <class Element>
struct SplitTable {
  Element* own = nullptr;
  std::span<const std::int32_t> own_index;
  std::int64_t own_begin = 0;
  Element* rest = nullptr;

  // `width` elements a row.
  Element* row(std::int64_t index, std::int64_t width) const {
    const std::int64_t after = index - own_begin;
    if (after < 0) return rest + index * width;
    const std::int64_t owned = std::ssize(own_index);
    return after < owned ? own + own_index[static_cast<std::size_t>(after)] * width
                         : rest + (index - owned) * width;
  }
};
// Rows to read, as bytes: `width` is the bytes of a row, whatever its type.
using SplitRows = SplitTable<const std::byte>;
// f32 rows to add to.
using SplitSums = SplitTable<float>;

}  // namespace evenkeel
