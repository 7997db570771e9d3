// The product for a weight gradient: C[M, N] += A[k, M]^T B[k, N], f32 C, for any k up to kTileRows.
//
// k is padded with rows of zeros, which change nothing, to the next of 16, 32 ... 384; each has a primitive.
// One or two rows need no primitive: each adds a multiple of its row of B to each row of C.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

class GradientProduct {
 public:
  GradientProduct(std::int64_t m, std::int64_t n, DataType type) : m_(m), n_(n), type_(type) {
    using dnnl::memory;
    const OneThread alone;
    dnnl::post_ops add_to_destination;
    add_to_destination.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attributes.set_post_ops(add_to_destination);
    const memory::data_type factors = dnnl_type(product_type(type));
    for (std::int64_t k = kVectorRows; k <= kTileRows; k += kVectorRows)
      rungs_.emplace_back(memory::desc({m, k}, factors, memory::format_tag::ba),
                          memory::desc({k, n}, factors, memory::format_tag::ab),
                          memory::desc({m, n}, memory::data_type::f32, memory::format_tag::ab), attributes);
  }

  static constexpr std::int64_t kFewRows = 2;
  // Rows of zeros needed after k rows.
  static constexpr std::int64_t padding(std::int64_t k) {
    return k <= kFewRows ? 0 : whole_vector_rows(k) - k;
  }

  // Scratch for products of at most `rows` rows.
  std::int64_t scratch_bytes(std::int64_t rows) const {
    if (rows <= kFewRows) return 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < rungs_.size(); ++i)
      if (static_cast<std::int64_t>(i) * kVectorRows < rows) most = std::max(most, rungs_[i].scratch_bytes());
    return most + widened_bytes(whole_vector_rows(rows));
  }

  // `a` and `b` must hold padding(k) rows of zeros after their k rows.
  void add(std::int64_t k, const void* a, const void* b, float* c, std::byte* scratch) const {
    if (k <= kFewRows) {
      for (std::int64_t i = 0; i < k; ++i) add_row(rows::at(a, i * m_, type_), rows::at(b, i * n_, type_), c);
      return;
    }
    const std::int64_t padded = whole_vector_rows(k);
    if (product_type(type_) != type_) {
      auto* const widened = reinterpret_cast<float*>(scratch);
      rows::to_f32(padded * m_, a, type_, widened);
      rows::to_f32(padded * n_, b, type_, widened + padded * m_);
      a = widened;
      b = widened + padded * m_;
      scratch += widened_bytes(padded);
    }
    rungs_[static_cast<std::size_t>(padded / kVectorRows - 1)].run(a, b, c, scratch);
  }

 private:
  void add_row(const void* a, const void* b, float* c) const {
    for (std::int64_t i = 0; i < m_; ++i) {
      float factor;
      rows::to_f32(1, rows::at(a, i, type_), type_, &factor);
      rows::add_scaled(n_, b, type_, factor, c + i * n_);
    }
  }
  // Bytes of `rows` widened rows of a and b; 0 if the type is not widened.
  std::int64_t widened_bytes(std::int64_t rows) const {
    return product_type(type_) == type_ ? 0 : whole_lines(rows * (m_ + n_) * std::int64_t{sizeof(float)});
  }

  std::int64_t m_, n_;
  DataType type_;
  std::vector<Product> rungs_;  // index: whole_vector_rows(k) / kVectorRows - 1
};

}  // namespace evenkeel::internal
