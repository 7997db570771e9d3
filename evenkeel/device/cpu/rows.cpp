#include "evenkeel/device/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "evenkeel/device/cpu/target_clones.h"

namespace evenkeel::rows {

namespace {

EVENKEEL_VECTOR_CLONES void widen(std::int64_t n, const std::uint16_t* from, std::uint32_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = std::uint32_t{from[i]} << 16;
}

EVENKEEL_VECTOR_CLONES void narrow(std::int64_t n, const std::uint32_t* from, std::uint16_t* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t word = from[i];
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (word >> 16) | 0x40u;
    to[i] = static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
}

EVENKEEL_VECTOR_CLONES void add_scaled_f32(std::int64_t n, const float* from, float factor, float* sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * from[i];
}

EVENKEEL_VECTOR_CLONES void add_scaled_bf16(std::int64_t n, const bf16* from, float factor, float* sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * static_cast<float>(from[i]);
}

constexpr std::int64_t kLanes = 32;

EVENKEEL_VECTOR_CLONES float dot_f32(std::int64_t n, const float* a, const float* b) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void to_f32(std::int64_t n, const void* from, DataType type, float* to) {
  if (type == DataType::f32)
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  else
    widen(n, static_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint32_t*>(to));
}

void from_f32(std::int64_t n, const float* from, void* to, DataType type) {
  if (type == DataType::f32)
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  else
    narrow(n, reinterpret_cast<const std::uint32_t*>(from), static_cast<std::uint16_t*>(to));
}

void add_scaled(std::int64_t n, const float* from, float factor, float* sum) {
  add_scaled_f32(n, from, factor, sum);
}

void add_scaled(std::int64_t n, const void* from, DataType type, float factor, float* sum) {
  if (type == DataType::f32)
    add_scaled_f32(n, static_cast<const float*>(from), factor, sum);
  else
    add_scaled_bf16(n, static_cast<const bf16*>(from), factor, sum);
}

float dot(std::int64_t n, const float* a, const float* b) {
  return dot_f32(n, a, b);
}

void weighted_sum(std::int64_t n, DataType type, int terms, const std::int32_t* slot, const float* weight,
                  const void* rows, void* out) {
  constexpr std::int64_t kBlock = 512;
  float sum[kBlock];
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t columns = std::min(kBlock, n - begin);
    std::fill_n(sum, columns, 0.0f);
    for (int i = 0; i < terms; ++i)
      if (slot[i] >= 0)
        add_scaled(columns, at(rows, slot[i] * n + begin, type), type, weight == nullptr ? 1.0f : weight[i],
                   sum);
    from_f32(columns, sum, at(out, begin, type), type);
  }
}

void gather(std::int64_t rows, const std::int32_t* row, std::int64_t n, const void* in, void* out,
            DataType type) {
  const auto bytes = static_cast<std::size_t>(n * bytes_of(type));
  for (std::int64_t i = 0; i < rows; ++i) std::memcpy(at(out, i * n, type), at(in, row[i] * n, type), bytes);
}

}  // namespace evenkeel::rows
