// Eight consecutive numbers of a row: the part that a lane holds in an epilogue, and the widest memory
// access.
#pragma once

#include <bit>
#include <cstdint>

#include "evenkeel/base/data_type.h"
#include "evenkeel/base/host_device.h"

namespace evenkeel::cuda {

inline constexpr int kEight = 8;

struct Eight {
  float at[kEight];
};

// How many of the eight columns from `column` exist in a row of `width`; zero or negative means none.
EVENKEEL_ALWAYS_INLINE int columns_left(std::int64_t width, std::int64_t column) {
  const std::int64_t left = width - column;
  return left < kEight ? static_cast<int>(left) : kEight;
}

namespace internal {

struct alignas(16) Line {
  std::uint32_t word[4];
};

template <class T>
EVENKEEL_HOST_DEVICE bool on_a_line(const T* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & (sizeof(Line) - 1)) == 0;
}

// Rounds two numbers to bf16, ties to even; `low` comes first in memory.
EVENKEEL_ALWAYS_INLINE std::uint32_t round_two(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return std::uint32_t{bf16(low).bits} | std::uint32_t{bf16(high).bits} << 16;
#endif
}

EVENKEEL_ALWAYS_INLINE float widen_low(std::uint32_t both) {
  return std::bit_cast<float>(both << 16);
}
EVENKEEL_ALWAYS_INLINE float widen_high(std::uint32_t both) {
  return std::bit_cast<float>(both & 0xffff0000u);
}

}  // namespace internal

EVENKEEL_ALWAYS_INLINE float rounded(float value) {
  return internal::widen_low(internal::round_two(value, 0));
}

// What is known about the alignment of eight numbers: `whole` lines at multiples of 16 bytes, as the Hopper
// kernel's sizes and addresses guarantee, or `any`.
enum class Lines { whole, any };

// Eight numbers in their memory format, so that they can be loaded long before they are used.
template <class T>
struct Fetched {
  static constexpr int kWords = static_cast<int>(kEight * sizeof(T) / sizeof(std::uint32_t));
  std::uint32_t word[kWords];
};

namespace internal {

template <Lines kLines, class T>
EVENKEEL_ALWAYS_INLINE bool in_lines(const T* address, int count) {
#if defined(__CUDA_ARCH__)
  if constexpr (kLines == Lines::whole) return true;
#endif
  return count >= kEight && on_a_line(address);
}

EVENKEEL_ALWAYS_INLINE void put_number(Fetched<float>& to, int i, float number) {
  to.word[i] = std::bit_cast<std::uint32_t>(number);
}
EVENKEEL_ALWAYS_INLINE void put_number(Fetched<bf16>& to, int i, bf16 number) {
  to.word[i / 2] |= std::uint32_t{number.bits} << (16 * (i % 2));
}

EVENKEEL_ALWAYS_INLINE float number_of(const Fetched<float>& from, int i) {
  return std::bit_cast<float>(from.word[i]);
}
EVENKEEL_ALWAYS_INLINE bf16 number_of(const Fetched<bf16>& from, int i) {
  bf16 number;
  number.bits = static_cast<std::uint16_t>(from.word[i / 2] >> (16 * (i % 2)));
  return number;
}

EVENKEEL_ALWAYS_INLINE Fetched<float> narrowed(const Eight& values, const float*) {
  Fetched<float> result;
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i) result.word[i] = std::bit_cast<std::uint32_t>(values.at[i]);
  return result;
}
EVENKEEL_ALWAYS_INLINE Fetched<bf16> narrowed(const Eight& values, const bf16*) {
  Fetched<bf16> result;
  EVENKEEL_UNROLL
  for (int i = 0; i < 4; ++i) result.word[i] = round_two(values.at[2 * i], values.at[2 * i + 1]);
  return result;
}

}  // namespace internal

// Loads the first `count` of eight numbers; the others are zero.
template <Lines kLines = Lines::any, class T>
EVENKEEL_ALWAYS_INLINE Fetched<T> fetch(const T* from, int count) {
  Fetched<T> result{};
  if (internal::in_lines<kLines>(from, count)) {
    EVENKEEL_UNROLL
    for (int part = 0; part < Fetched<T>::kWords / 4; ++part) {
      const auto line = reinterpret_cast<const internal::Line*>(from)[part];
      EVENKEEL_UNROLL
      for (int i = 0; i < 4; ++i) result.word[4 * part + i] = line.word[i];
    }
    return result;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) internal::put_number(result, i, from[i]);
  return result;
}

EVENKEEL_ALWAYS_INLINE Eight widened(const Fetched<float>& from) {
  Eight result;
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i) result.at[i] = std::bit_cast<float>(from.word[i]);
  return result;
}
EVENKEEL_ALWAYS_INLINE Eight widened(const Fetched<bf16>& from) {
  Eight result;
  EVENKEEL_UNROLL
  for (int i = 0; i < 4; ++i) {
    result.at[2 * i] = internal::widen_low(from.word[i]);
    result.at[2 * i + 1] = internal::widen_high(from.word[i]);
  }
  return result;
}

template <Lines kLines = Lines::any, class T>
EVENKEEL_ALWAYS_INLINE void store(const Eight& values, T* to, int count) {
  const Fetched<T> numbers = internal::narrowed(values, to);
  if (internal::in_lines<kLines>(to, count)) {
    EVENKEEL_UNROLL
    for (int part = 0; part < Fetched<T>::kWords / 4; ++part) {
      internal::Line line;
      EVENKEEL_UNROLL
      for (int i = 0; i < 4; ++i) line.word[i] = numbers.word[4 * part + i];
      reinterpret_cast<internal::Line*>(to)[part] = line;
    }
    return;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) to[i] = internal::number_of(numbers, i);
}

}  // namespace evenkeel::cuda
