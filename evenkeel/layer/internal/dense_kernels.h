// The function that dense_kernels.inl defines for each vector instruction set.
#pragma once

#include <cstdint>

namespace evenkeel::internal {

struct DenseKernels {
  // c[rows, columns] += a[rows, K] b[K, columns]. The row stride of a is K, that of b and c is N.
  void (*multiply_block)(std::int64_t K, std::int64_t N, const double* a, const double* b, double* c);
  std::int64_t rows;
  std::int64_t columns;
};

}  // namespace evenkeel::internal
