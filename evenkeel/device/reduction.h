// How values of several ranks become one.
#pragma once

#include <cstdint>

namespace evenkeel {

enum class Reduction { sum, min, max };

// What is reduced: whole numbers add modulo 2^64.
enum class ValueType : std::uint8_t { int64, float64 };

}  // namespace evenkeel
