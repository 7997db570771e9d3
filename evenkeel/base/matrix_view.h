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

// Rows of one width and type under one numbering: the first own_index.size() are rows of a table of the
// caller's, own[own_index[r]]; those that follow lie one behind the other in `rest`.
struct SplitRows {
  const void* own = nullptr;
  std::span<const std::int32_t> own_index;
  const void* rest = nullptr;

  const void* row(std::int64_t index, std::int64_t row_bytes) const {
    const auto owned = static_cast<std::int64_t>(own_index.size());
    return index < owned
               ? static_cast<const std::byte*>(own) + own_index[static_cast<std::size_t>(index)] * row_bytes
               : static_cast<const std::byte*>(rest) + (index - owned) * row_bytes;
  }
};

}  // namespace evenkeel
