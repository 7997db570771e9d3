// The dense reference's inner loop, compiled for one vector instruction set. A block of sums stays in
// registers.
#include <cstring>

#include "evenkeel/device/cpu/vector.h"
#include "evenkeel/layer/internal/dense_kernels.h"

namespace evenkeel::internal::EVENKEEL_VECTOR_ISA {

namespace {

constexpr std::int64_t kLanes = vector::kLanes / 2;
using Doubles = double __attribute__((vector_size(kLanes * 8)));
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kVectors = kLanes == 8 ? 4 : 2;  // for 32 vector registers, or for 16

EVENKEEL_INLINE Doubles load(const double* from) {
  Doubles lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

void multiply_block(std::int64_t K, std::int64_t N, const double* a, const double* b, double* c) {
  Doubles sum[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < K; ++k)
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const Doubles column = load(b + k * N + v * kLanes);
      for (std::int64_t i = 0; i < kRows; ++i) sum[i][v] += a[i * K + k] * column;
    }
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t v = 0; v < kVectors; ++v) {
      double* const at = c + i * N + v * kLanes;
      const Doubles total = load(at) + sum[i][v];
      std::memcpy(at, &total, sizeof(total));
    }
}

}  // namespace

extern const DenseKernels dense_kernels;
const DenseKernels dense_kernels = {multiply_block, kRows, kVectors* kLanes};

}  // namespace evenkeel::internal::EVENKEEL_VECTOR_ISA
