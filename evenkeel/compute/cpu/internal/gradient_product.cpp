#include "evenkeel/compute/cpu/internal/gradient_product.h"

#include <algorithm>

#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

using dnnl::memory;

GradientProduct::GradientProduct(std::int64_t m, std::int64_t n, DataType type)
    : m_(m), n_(n), type_(type), c_({m, n}, memory::data_type::f32, memory::format_tag::ab) {
  const OneThread alone;
  dnnl::post_ops add_to_destination;
  add_to_destination.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(add_to_destination);
  for (std::int64_t k = kVectorRows; k <= kTileRows; k += kVectorRows) {
    const memory::desc a({m, k}, dnnl_type(product_type(type)), memory::format_tag::ba);
    const memory::desc b({k, n}, dnnl_type(product_type(type)), memory::format_tag::ab);
    const dnnl::matmul::primitive_desc made = product_of(a, b, c_, attributes);
    rungs_.push_back({dnnl::matmul(made), a, b, made.scratchpad_desc()});
  }
}

std::int64_t GradientProduct::scratch_bytes(std::int64_t rows) const {
  std::int64_t most = 0;
  for (std::size_t i = 0; rows > kFewRows && i < rungs_.size(); ++i)
    if (static_cast<std::int64_t>(i) * kVectorRows < rows)
      most = std::max(most, static_cast<std::int64_t>(rungs_[i].scratch.get_size()));
  return most + (rows > kFewRows ? widened_bytes(whole_vector_rows(rows)) : 0);
}

std::int64_t GradientProduct::widened_bytes(std::int64_t rows) const {
  return product_type(type_) == type_ ? 0 : whole_lines(rows * (m_ + n_) * std::int64_t{sizeof(float)});
}

void GradientProduct::add_row(const void* a, const void* b, float* c) const {
  for (std::int64_t i = 0; i < m_; ++i) {
    float factor;
    rows::to_f32(1, rows::at(a, i, type_), type_, &factor);
    rows::add_scaled(n_, b, type_, factor, c + i * n_);
  }
}

void GradientProduct::add(std::int64_t k, const void* a, const void* b, float* c, std::byte* scratch) const {
  if (k <= kFewRows) {
    for (std::int64_t i = 0; i < k; ++i) add_row(rows::at(a, i * m_, type_), rows::at(b, i * n_, type_), c);
    return;
  }
  const OneThread alone;
  const std::int64_t padded = whole_vector_rows(k);
  const Rung& rung = rungs_[static_cast<std::size_t>(padded / kVectorRows - 1)];
  if (product_type(type_) != type_) {
    auto* const widened = reinterpret_cast<float*>(scratch);
    rows::to_f32(padded * m_, a, type_, widened);
    rows::to_f32(padded * n_, b, type_, widened + padded * m_);
    a = widened;
    b = widened + padded * m_;
    scratch += widened_bytes(padded);
  }
  rung.product.execute(cpu_stream(), {{DNNL_ARG_SRC, view(rung.a, a)},
                                      {DNNL_ARG_WEIGHTS, view(rung.b, b)},
                                      {DNNL_ARG_DST, view(c_, c)},
                                      {DNNL_ARG_SCRATCHPAD, view(rung.scratch, scratch)}});
}

}  // namespace evenkeel::internal
