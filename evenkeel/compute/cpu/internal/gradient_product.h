// The product behind a weight gradient: C[M, N] += A[k, M]^T B[k, N], f32 C, for any k up to kTileRows.
//
// Rows of zeros change nothing, so k is padded with them up to the next of 16, 32 ... 384, for each of which
// there is a primitive. A row or two need neither: each adds a multiple of its b to each row of C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"

namespace evenkeel::internal {

class GradientProduct {
 public:
  GradientProduct(std::int64_t m, std::int64_t n, DataType type);

  static constexpr std::int64_t kFewRows = 2;
  // Rows of zeros behind k rows.
  static constexpr std::int64_t padding(std::int64_t k) {
    return k <= kFewRows ? 0 : whole_vector_rows(k) - k;
  }

  // Of products of at most `rows` rows.
  std::int64_t scratch_bytes(std::int64_t rows) const;
  // `a` and `b` must hold padding(k) rows of zeros behind the k.
  void add(std::int64_t k, const void* a, const void* b, float* c, std::byte* scratch) const;

 private:
  void add_row(const void* a, const void* b, float* c) const;
  // Of so many rows of a and b, where they are widened.
  std::int64_t widened_bytes(std::int64_t rows) const;

  struct Rung {
    dnnl::matmul product;
    dnnl::memory::desc a, b, scratch;
  };
  std::int64_t m_, n_;
  DataType type_;
  dnnl::memory::desc c_;
  std::vector<Rung> rungs_;  // by whole_vector_rows(k) / kVectorRows - 1
};

}  // namespace evenkeel::internal
