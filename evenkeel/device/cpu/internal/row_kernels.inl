// The inner loops of rows.h, compiled for one vector instruction set.
#include "evenkeel/base/data_type.h"
#include "evenkeel/device/cpu/internal/row_kernels.h"
#include "evenkeel/device/cpu/vector.h"

namespace evenkeel::rows::EVENKEEL_VECTOR_ISA {

namespace {

using vector::Floats;
using vector::kLanes;

void widen(std::int64_t n, const std::uint16_t* from, std::uint32_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = std::uint32_t{from[i]} << 16;
}

void narrow(std::int64_t n, const std::uint32_t* from, std::uint16_t* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t word = from[i];
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (word >> 16) | 0x40u;
    const std::uint32_t half = (word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
    to[i] = static_cast<std::uint16_t>(half);
  }
}

void scale(std::int64_t n, float factor, float* row) {
  for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
}

void add_scaled_f32(std::int64_t n, const float* from, float factor, float* sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * from[i];
}

void add_scaled_bf16(std::int64_t n, const std::uint16_t* from, float factor, float* sum) {
  for (std::int64_t i = 0; i < n; ++i)
    sum[i] += factor * __builtin_bit_cast(float, std::uint32_t{from[i]} << 16);
}

float dot(std::int64_t n, const float* a, const float* b) {
  Floats even{};
  Floats odd{};
  for (std::int64_t i = 0; i < n; i += 2 * kLanes) {
    even += vector::load(a + i, n - i) * vector::load(b + i, n - i);
    if (n - i > kLanes)
      odd += vector::load(a + i + kLanes, n - i - kLanes) * vector::load(b + i + kLanes, n - i - kLanes);
  }
  even += odd;
  float sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += even[lane];
  return sum;
}

}  // namespace

extern const RowKernels row_kernels;
const RowKernels row_kernels = {widen, narrow, scale, add_scaled_f32, add_scaled_bf16, dot};

}  // namespace evenkeel::rows::EVENKEEL_VECTOR_ISA
