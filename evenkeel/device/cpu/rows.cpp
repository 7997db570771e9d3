#include "evenkeel/device/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "evenkeel/device/cpu/internal/row_kernels.h"
#include "evenkeel/device/cpu/vector_isa.h"

namespace evenkeel::rows {

namespace baseline {
extern const RowKernels row_kernels;
}
namespace avx2 {
extern const RowKernels row_kernels;
}
namespace avx512 {
extern const RowKernels row_kernels;
}

namespace {

const RowKernels& best() {
  static const RowKernels& kernels =
      vector::best_of(baseline::row_kernels, avx2::row_kernels, avx512::row_kernels);
  return kernels;
}

}  // namespace

void to_f32(std::int64_t n, const void* from, DataType type, float* to) {
  if (n == 0) return;  // the pointers may be null
  if (type == DataType::f32)
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  else
    best().widen(n, static_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint32_t*>(to));
}

void from_f32(std::int64_t n, const float* from, void* to, DataType type) {
  if (n == 0) return;
  if (type == DataType::f32)
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  else
    best().narrow(n, reinterpret_cast<const std::uint32_t*>(from), static_cast<std::uint16_t*>(to));
}

void scale(std::int64_t n, float factor, float* row) {
  best().scale(n, factor, row);
}

void add_scaled(std::int64_t n, const float* from, float factor, float* sum) {
  best().add_scaled_f32(n, from, factor, sum);
}

void add_scaled(std::int64_t n, const void* from, DataType type, float factor, float* sum) {
  if (type == DataType::f32)
    best().add_scaled_f32(n, static_cast<const float*>(from), factor, sum);
  else
    best().add_scaled_bf16(n, static_cast<const std::uint16_t*>(from), factor, sum);
}

float dot(std::int64_t n, const float* a, const float* b) {
  return best().dot(n, a, b);
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

void gather(std::int64_t rows, const std::int32_t* row, std::int64_t n, const SplitRows& in, void* out,
            DataType type) {
  const std::int64_t bytes = n * bytes_of(type);
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(at(out, i * n, type), in.row(row[i], bytes), static_cast<std::size_t>(bytes));
}

}  // namespace evenkeel::rows
