// The product behind a weight gradient: C[M, N] += A[k, M]^T B[k, N], f32 C, for any k up to kTileRows.
//
// Rows of zeros change nothing, so k is padded with them up to the next of 16, 32 ... 384, for each of which
// there is a primitive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"

namespace evenkeel::internal {

class GradientProduct {
 public:
  GradientProduct(std::int64_t m, std::int64_t n, DataType type);

  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // `a` and `b` must hold zeros in rows k up to whole_vector_rows(k).
  void add(std::int64_t k, const void* a, const void* b, float* c, std::byte* scratch) const;

 private:
  struct Rung {
    dnnl::matmul product;
    dnnl::memory::desc a, b, scratch;
  };
  dnnl::memory::desc c_;
  std::vector<Rung> rungs_;  // by whole_vector_rows(k) / kVectorRows - 1
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace evenkeel::internal
