// Views of row-major matrices whose element type is known at run time.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace evenkeel
