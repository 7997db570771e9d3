// Eight neighbouring numbers of a row: what a lane holds of it in an epilogue, and the widest access there
// is.
#pragma once

#include <bit>
#include <cstdint>

#include "evenkeel/base/data_type.h"
#include "evenkeel/compute/cuda/internal/inline.h"

namespace evenkeel::cuda {

inline constexpr int kEight = 8;

struct Eight {
  float at[kEight];
};

namespace internal {

struct alignas(16) Line {
  std::uint32_t word[4];
};

template <class T>
EVENKEEL_HOST_DEVICE bool on_a_line(const T* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & (sizeof(Line) - 1)) == 0;
}

// Two numbers rounded to bf16, ties to even; `low` comes first in memory.
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

// The first `count` of eight numbers; the others are zero.
EVENKEEL_ALWAYS_INLINE Eight load(const bf16* from, int count) {
  Eight result{};
  if (count >= kEight && internal::on_a_line(from)) {
    const auto line = *reinterpret_cast<const internal::Line*>(from);
    EVENKEEL_UNROLL
    for (int i = 0; i < 4; ++i) {
      result.at[2 * i] = internal::widen_low(line.word[i]);
      result.at[2 * i + 1] = internal::widen_high(line.word[i]);
    }
    return result;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) result.at[i] = internal::widen_low(from[i].bits);
  return result;
}

EVENKEEL_ALWAYS_INLINE Eight load(const float* from, int count) {
  Eight result{};
  if (count >= kEight && internal::on_a_line(from)) {
    for (int half = 0; half < 2; ++half) {
      const auto line = reinterpret_cast<const internal::Line*>(from)[half];
      EVENKEEL_UNROLL
      for (int i = 0; i < 4; ++i) result.at[4 * half + i] = std::bit_cast<float>(line.word[i]);
    }
    return result;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) result.at[i] = from[i];
  return result;
}

EVENKEEL_ALWAYS_INLINE void store(const Eight& values, bf16* to, int count) {
  internal::Line line;
  EVENKEEL_UNROLL
  for (int i = 0; i < 4; ++i) line.word[i] = internal::round_two(values.at[2 * i], values.at[2 * i + 1]);
  if (count >= kEight && internal::on_a_line(to)) {
    *reinterpret_cast<internal::Line*>(to) = line;
    return;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) to[i].bits = static_cast<std::uint16_t>(line.word[i / 2] >> (16 * (i % 2)));
}

EVENKEEL_ALWAYS_INLINE void store(const Eight& values, float* to, int count) {
  if (count >= kEight && internal::on_a_line(to)) {
    for (int half = 0; half < 2; ++half) {
      internal::Line line;
      EVENKEEL_UNROLL
      for (int i = 0; i < 4; ++i) line.word[i] = std::bit_cast<std::uint32_t>(values.at[4 * half + i]);
      reinterpret_cast<internal::Line*>(to)[half] = line;
    }
    return;
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) to[i] = values.at[i];
}

}  // namespace evenkeel::cuda
