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

  operator ConstRows() const { return {data, rows, columns, type}; }  // NOLINT: a view of the same
};

// Rows of one width and type under one numbering. Those from own_begin on are rows of a table of the
// caller's, own[own_index[i]]; the others lie one behind the other in `rest`.
struct SplitRows {
  const void* own = nullptr;
  std::span<const std::int32_t> own_index;
  std::int64_t own_begin = 0;
  const void* rest = nullptr;

  const void* row(std::int64_t index, std::int64_t row_bytes) const {
    const auto at = [&](const void* rows, std::int64_t i) {
      return static_cast<const std::byte*>(rows) + i * row_bytes;
    };
    const std::int64_t after = index - own_begin;
    if (after < 0) return at(rest, index);
    const std::int64_t owned = std::ssize(own_index);
    return after < owned ? at(own, own_index[static_cast<std::size_t>(after)]) : at(rest, index - owned);
  }
};

}  // namespace evenkeel
