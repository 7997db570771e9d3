// The functions that row_kernels.inl defines for each vector instruction set.
#pragma once

#include <cstdint>

namespace evenkeel::rows {

struct RowKernels {
  void (*widen)(std::int64_t n, const std::uint16_t* from, std::uint32_t* to);
  void (*narrow)(std::int64_t n, const std::uint32_t* from, std::uint16_t* to);
  void (*scale)(std::int64_t n, float factor, float* row);
  void (*add_scaled_f32)(std::int64_t n, const float* from, float factor, float* sum);
  void (*add_scaled_bf16)(std::int64_t n, const std::uint16_t* from, float factor, float* sum);
  float (*dot)(std::int64_t n, const float* a, const float* b);
};

}  // namespace evenkeel::rows
