#include "evenkeel/layer/internal/dense_product.h"

#include <algorithm>

#include "evenkeel/device/cpu/vector_isa.h"
#include "evenkeel/layer/internal/dense_kernels.h"

namespace evenkeel::internal {

namespace baseline {
extern const DenseKernels dense_kernels;
}
namespace avx2 {
extern const DenseKernels dense_kernels;
}
namespace avx512 {
extern const DenseKernels dense_kernels;
}

namespace {

void multiply_edge(std::int64_t rows, std::int64_t columns, std::int64_t K, std::int64_t N, const double* a,
                   const double* b, double* c) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
      c[i * N + j] += sum;
    }
}

}  // namespace

// A panel of b's columns stays in the cache while a's rows pass by.
void multiply_dense(std::int64_t M, std::int64_t N, std::int64_t K, const std::vector<double>& a,
                    const std::vector<double>& b, std::vector<double>& c) {
  static const DenseKernels& best =
      vector::best_of(baseline::dense_kernels, avx2::dense_kernels, avx512::dense_kernels);
  for (std::int64_t j = 0; j < N; j += best.columns)
    for (std::int64_t i = 0; i < M; i += best.rows) {
      const double* const rows = a.data() + i * K;
      double* const block = c.data() + i * N + j;
      if (i + best.rows <= M && j + best.columns <= N)
        best.multiply_block(K, N, rows, b.data() + j, block);
      else
        multiply_edge(std::min(best.rows, M - i), std::min(best.columns, N - j), K, N, rows, b.data() + j,
                      block);
    }
}

}  // namespace evenkeel::internal
