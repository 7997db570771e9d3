// Reductions: how the values of several ranks are combined into one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "evenkeel/base/host_device.h"

namespace evenkeel {

enum class Reduction { sum, min, max };

// Type of the reduced values. Integers add modulo 2^64.
enum class ValueType : std::uint8_t { int64, float64 };

template <class Value>
EVENKEEL_HOST_DEVICE Value combined(Value a, Value b, Reduction reduction) {
  if (reduction == Reduction::min) return b < a ? b : a;
  if (reduction == Reduction::max) return a < b ? b : a;
  if constexpr (std::is_integral_v<Value>)
    return static_cast<Value>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}

// Reduces on the host: reduced[i] combines values[i], values[n + i], ... of all `parts` in this order, so
// that all ranks get the same bits.
void reduce_on_host(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                    void* reduced);

}  // namespace evenkeel
