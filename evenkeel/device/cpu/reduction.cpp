#include "evenkeel/device/reduction.h"

namespace evenkeel {

namespace {

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
