#include "evenkeel/device/reduction.h"

#include <algorithm>
#include <type_traits>

namespace evenkeel {

namespace {

template <class Value>
Value combined(Value a, Value b, Reduction reduction) {
  if (reduction == Reduction::min) return std::min(a, b);
  if (reduction == Reduction::max) return std::max(a, b);
  if constexpr (std::is_integral_v<Value>)
    return static_cast<Value>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));  // wraps
  else
    return a + b;
}

template <class Value>
void reduce(const Value* values, int parts, std::int64_t n, Reduction reduction, Value* reduced) {
  for (std::int64_t i = 0; i < n; ++i) {
    Value total = values[i];
    for (int part = 1; part < parts; ++part) total = combined(total, values[part * n + i], reduction);
    reduced[i] = total;
  }
}

}  // namespace

void reduce_on_host(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                    void* reduced) {
  if (type == ValueType::int64)
    reduce(static_cast<const std::int64_t*>(values), parts, n, reduction,
           static_cast<std::int64_t*>(reduced));
  else
    reduce(static_cast<const double*>(values), parts, n, reduction, static_cast<double*>(reduced));
}

}  // namespace evenkeel
