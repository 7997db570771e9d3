// Vectors of floats of the width that this translation unit is compiled for, in the compiler's own vector
// type. All lanes are computed alike, and so is the last, shorter piece of a row.
//
// Include it only where everything is static or always inlined. A file compiled once per instruction set
// (evenkeel_vector_sources in CMake) must not define inline functions with external linkage: the linker might
// pick another instruction set's copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define EVENKEEL_INLINE inline __attribute__((always_inline))

namespace evenkeel::vector {

#if defined(__AVX512F__)
inline constexpr std::int64_t kLanes = 16;
#elif defined(__AVX2__)
inline constexpr std::int64_t kLanes = 8;
#else
inline constexpr std::int64_t kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Ints = std::int32_t __attribute__((vector_size(kLanes * 4)));

// Load or store up to kLanes floats. Lanes beyond `count` are loaded as zeros and not stored.
EVENKEEL_INLINE Floats load(const float* from, std::int64_t count) {
  if (count >= kLanes) {
    Floats lanes;
    std::memcpy(&lanes, from, sizeof(lanes));
    return lanes;
  }
  Floats lanes{};
  std::memcpy(&lanes, from, static_cast<std::size_t>(count) * sizeof(float));
  return lanes;
}
EVENKEEL_INLINE void store(Floats lanes, float* to, std::int64_t count) {
  if (count >= kLanes)
    std::memcpy(to, &lanes, sizeof(lanes));
  else
    std::memcpy(to, &lanes, static_cast<std::size_t>(count) * sizeof(float));
}

EVENKEEL_INLINE Floats all(float value) {
  return value - Floats{};
}
// A NaN lane stays NaN: for NaN, both instructions return their second operand.
EVENKEEL_INLINE Floats least(Floats lanes, float limit) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, all(limit), lanes);
#elif defined(__AVX2__)
  return _mm256_min_ps(all(limit), lanes);
#else
  return all(limit) < lanes ? all(limit) : lanes;
#endif
}
EVENKEEL_INLINE Floats most(Floats lanes, float limit) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, all(limit), lanes);
#elif defined(__AVX2__)
  return _mm256_max_ps(all(limit), lanes);
#else
  return all(limit) > lanes ? all(limit) : lanes;
#endif
}

// e^x to about one unit in the last place, with x clamped to [-87, 88]. Splits x = n ln 2 + r, evaluates the
// Taylor series to the 7th power for |r| <= ln 2 / 2, and builds 2^n from its bits.
EVENKEEL_INLINE Floats exp(Floats x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the lowest bits
  const Floats bounded = least(most(x, -87.0f), 88.0f);
  const Floats rounded = bounded * kLog2e + kRound;
  const Floats n = rounded - kRound;
  const Floats r = (bounded - n * kLn2High) - n * kLn2Low;
  Floats p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Ints power;
  std::memcpy(&power, &rounded, sizeof(power));
  power = (power + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &power, sizeof(scale));
  return p * scale;
}

}  // namespace evenkeel::vector
