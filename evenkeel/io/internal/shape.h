// Checks shapes from files before their lengths are multiplied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace evenkeel::internal {

// The number of elements; nullopt if a length is negative, or the number of elements or bytes is above
// 2^63-1.
inline std::optional<std::int64_t> count_elements(std::span<const std::int64_t> shape,
                                                  std::int64_t item_size) {
  std::int64_t count = 1;
  std::int64_t bytes = 0;
  for (std::int64_t length : shape)
    if (length < 0 || __builtin_mul_overflow(count, length, &count)) return std::nullopt;
  if (__builtin_mul_overflow(count, item_size, &bytes)) return std::nullopt;
  return count;
}

inline std::string to_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace evenkeel::internal
