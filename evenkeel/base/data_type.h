// The number types that hidden rows and weights come in.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace evenkeel {

enum class DataType { f32, bf16 };

constexpr std::int64_t bytes_of(DataType type) {
  return type == DataType::f32 ? 4 : 2;
}
constexpr std::string_view name_of(DataType type) {
  return type == DataType::f32 ? "f32" : "bf16";
}

// The upper half of a float; the lower half is rounded away, ties to even.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (word >> 16) | 0x40u;
    bits = static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  explicit constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};
static_assert(sizeof(bf16) == 2);

}  // namespace evenkeel
