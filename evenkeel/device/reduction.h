// How values of several ranks become one.
#pragma once

#include <cstdint>

namespace evenkeel {

enum class Reduction { sum, min, max };

// The type of the values that are reduced: whole numbers add modulo 2^64.
enum class ValueType : std::uint8_t { int64, float64 };

}  // namespace evenkeel
