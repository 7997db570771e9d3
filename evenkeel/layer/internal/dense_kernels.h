// The function that dense_kernels.inl leaves for each kind of vector unit.
#pragma once

#include <cstdint>

namespace evenkeel::internal {

struct DenseKernels {
  // c[rows, columns] += a[rows, K] b[K, columns], where rows of a lie K apart, and those of b and c N.
  void (*multiply_block)(std::int64_t K, std::int64_t N, const double* a, const double* b, double* c);
  std::int64_t rows;
  std::int64_t columns;
};

}  // namespace evenkeel::internal
