#include "evenkeel/compute/cpu/expert_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/gradient_product.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel {

namespace {

using internal::GradientProduct;
using internal::kTileRows;
using internal::RowLadder;
using rows::at;

// Cuts a workspace into pieces, or only adds them up.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  std::byte* bytes(std::int64_t count) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += internal::whole_lines(count);
    return piece;
  }
  float* floats(std::int64_t count) { return reinterpret_cast<float*>(bytes(count * 4)); }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// What a forward pass multiplies. Gate and up are two runs of one product, so that both halves of a block of
// pre-activations are in the cache together.
struct ForwardProducts {
  ForwardProducts(const ExpertShape& s)
      : inner(s.hidden, s.intermediate, s.type, RowLadder::Plain::out_by_in,
              RowLadder::Bits::of_the_row_alone),
        down(s.intermediate, s.hidden, s.type, RowLadder::Plain::out_by_in,
             RowLadder::Bits::of_the_row_alone) {}

  RowLadder inner;  // x [m, D] gate^T, x up^T
  RowLadder down;   // h [m, F] down^T
};

struct BackwardProducts {
  BackwardProducts(const ExpertShape& s)
      : grad_h(s.hidden, s.intermediate, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_x(s.gate_up_rows(), s.hidden, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_gate_up(s.gate_up_rows(), s.hidden, s.type),
        grad_down(s.hidden, s.intermediate, s.type) {}

  RowLadder grad_h;  // G [m, D] down [D, F]
  RowLadder grad_x;  // grad_pre [m, 2F] gate_up [2F, D]
  GradientProduct grad_gate_up;
  GradientProduct grad_down;
};

// The products behind weight gradients take whole vectors of rows, of which the last may be beyond a group's.
std::int64_t margin_bytes(const ExpertShape& shape) {
  return (internal::kVectorRows - 1) * shape.gate_up_rows() * bytes_of(shape.type);
}

// What is held of the rows of a tile. f32 results of products are held for one block of columns.
struct ForwardTile {
  ForwardTile(Carver& carver, const ExpertShape& s, const ForwardProducts& products,
              std::int64_t scratch_bytes)
      : x(carver.bytes(kTileRows * s.hidden * bytes_of(s.type))),
        gate(carver.floats(is_gated(s.activation) ? kTileRows * products.inner.widest_block() : 0)),
        up(carver.floats(kTileRows * std::max(products.inner.widest_block(), products.down.widest_block()))),
        h(carver.bytes(kTileRows * s.intermediate * bytes_of(s.type))),
        h_row(carver.floats(products.inner.widest_block())),
        scratch(carver.bytes(scratch_bytes)) {}

  std::byte* x;
  float* y() const { return up; }  // when h is whole

  float *gate, *up;
  std::byte* h;
  float* h_row;
  std::byte* scratch;
};

// Rows that are not wanted at the same time share their room: the input is gathered once to compute
// pre-activations again, before there is an h, and once for the weights' gradient, when G is done with; f32
// results of products are used up block by block. The gradient of pre-activations is written over them.
struct BackwardTile {
  BackwardTile(Carver& carver, const ExpertShape& s, const BackwardProducts& products, const RowLadder* again,
               std::int64_t scratch_bytes)
      : g(carver.bytes(kTileRows * s.hidden * bytes_of(s.type))),
        weighted_h(
            carver.bytes(kTileRows * std::max(s.intermediate, again ? s.hidden : 0) * bytes_of(s.type))),
        pre_again(carver.bytes(again ? kTileRows * s.gate_up_rows() * bytes_of(s.type) : 0)),
        aside(carver.bytes(margin_bytes(s))),
        block(carver.floats(kTileRows * widest(products, again))),
        gate_block(carver.floats(again && is_gated(s.activation) ? kTileRows * again->widest_block() : 0)),
        gate_row(carver.floats(products.grad_h.widest_block())),
        up_row(carver.floats(products.grad_h.widest_block())),
        h_row(carver.floats(products.grad_h.widest_block())),
        grad_gate_row(carver.floats(products.grad_h.widest_block())),
        grad_up_row(carver.floats(products.grad_h.widest_block())),
        g_row(carver.floats(s.biases ? s.hidden : 0)),
        scratch(carver.bytes(scratch_bytes)) {}

  static std::int64_t widest(const BackwardProducts& products, const RowLadder* again) {
    return std::max(
        {products.grad_h.widest_block(), products.grad_x.widest_block(), again ? again->widest_block() : 0});
  }
  std::byte* x() const { return g; }
  std::byte* x_again() const { return weighted_h; }

  std::byte *g, *weighted_h, *pre_again, *aside;
  float *block, *gate_block, *gate_row, *up_row, *h_row, *grad_gate_row, *grad_up_row, *g_row;
  std::byte* scratch;
};

// Where the parts of prepared weights begin; biases are f32.
struct InnerParts {  // of Pass::recompute, and with `down` behind it of Pass::forward
  const std::byte* products;
  const float* biases;
  const std::byte* end;
};
struct DownParts {
  const std::byte* product;
  const float* biases;
};

// Positions [begin, end) of a group, at most a tile.
struct Span {
  std::int64_t begin;
  std::int64_t rows;
};

// Cuts a group into tiles of about the same size, so that none is a small remainder. All but the last are of
// whole vector-unit rows, so that the last alone is padded.
template <class Body>
void for_each_tile(const ExpertGroup& group, std::int64_t most, const Body& body) {
  const std::int64_t rows = group.end - group.begin;
  const std::int64_t tiles = (rows + most - 1) / most;
  const std::int64_t equal = (rows + tiles - 1) / tiles;
  const std::int64_t height = std::min(most, internal::whole_vector_rows(equal));
  for (std::int64_t begin = group.begin; begin < group.end; begin += height)
    body(Span{begin, std::min(height, group.end - begin)});
}

class CpuExpertFfn final : public ExpertFfn {
 public:
  CpuExpertFfn(const ExpertShape& shape, bool with_backward) : shape_(shape), forward_(shape) {
    if (with_backward) backward_.emplace(shape);
    bitwise_.holds = forward_.inner.bitwise() && forward_.down.bitwise();
    if (!bitwise_.holds)
      bitwise_.reason = "this CPU's products give a row other bits at another position or row count";
    bitwise_.fingerprint = forward_.inner.fingerprint() * 31 + forward_.down.fingerprint();
  }

  const ExpertShape& shape() const override { return shape_; }
  const BitwiseReport& bitwise() const override { return bitwise_; }

  // Recompute: gate, up, their biases. Forward: the same, down, its biases. Backward: gate_up, down, its
  // biases.
  std::int64_t prepared_bytes(Pass pass) const override {
    if (pass == Pass::backward)
      return products().grad_x.packed_bytes() + products().grad_h.packed_bytes() + bias_bytes(shape_.hidden);
    const std::int64_t inner = inner_bytes() + bias_bytes(shape_.gate_up_rows());
    return pass == Pass::recompute ? inner : inner + forward_.down.packed_bytes() + bias_bytes(shape_.hidden);
  }

  void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const override {
    EVENKEEL_CHECK(static_cast<std::int64_t>(prepared.size()) >= prepared_bytes(pass));
    std::byte* next = prepared.data();
    const auto pack = [&](const RowLadder& product, const void* plain) {
      if (plain != nullptr) product.pack(plain, next);
      next += product.packed_bytes();
    };
    const auto widen = [&](std::int64_t count, const void* biases) {
      if (biases != nullptr) rows::to_f32(count, biases, shape_.type, reinterpret_cast<float*>(next));
      next += bias_bytes(count);
    };
    if (pass == Pass::backward) {
      pack(products().grad_x, weights.gate_up);
      pack(products().grad_h, weights.down);
      return widen(shape_.hidden, weights.down_bias);
    }
    pack(forward_.inner, weights.gate_up);
    if (is_gated(shape_.activation)) pack(forward_.inner, up_of(weights.gate_up));
    widen(shape_.gate_up_rows(), weights.gate_up_bias);
    if (pass == Pass::recompute) return;
    pack(forward_.down, weights.down);
    widen(shape_.hidden, weights.down_bias);
  }

  std::int64_t workspace_bytes(Pass pass) const override {
    Carver carver(nullptr);
    if (pass == Pass::forward)
      ForwardTile(carver, shape_, forward_, scratch_bytes(pass));
    else
      BackwardTile(carver, shape_, products(), pass == Pass::recompute ? &forward_.inner : nullptr,
                   scratch_bytes(pass));
    return carver.used();
  }

  std::int64_t saved_bytes_per_position() const override {
    return shape_.gate_up_rows() * bytes_of(shape_.type);
  }
  std::int64_t saved_margin_bytes() const override { return margin_bytes(shape_); }

  void forward(const ExpertBatch& batch, const SplitRows& input, void* output,
               std::span<std::byte> workspace) const override {
    Carver carver(workspace.data());
    const ForwardTile tile(carver, shape_, forward_, scratch_bytes(Pass::forward));
    EVENKEEL_CHECK(carver.used() <= static_cast<std::int64_t>(workspace.size()));
    for (const ExpertGroup& group : batch.groups) {
      if (group.begin == group.end) continue;
      const InnerParts inner = inner_of(group.prepared);
      const DownParts down{inner.end,
                           reinterpret_cast<const float*>(inner.end + forward_.down.packed_bytes())};
      for_each_tile(group, std::min(forward_.inner.max_rows(), forward_.down.max_rows()), [&](Span span) {
        rows::gather(span.rows, &batch.input_row[static_cast<std::size_t>(span.begin)], shape_.hidden, input,
                     tile.x, shape_.type);
        fill_h(span, inner, tile, saved_of(group, span));
        fill_output(batch, span, down, tile, output);
      });
    }
  }

  void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                std::span<const float> weight, const SplitSums& grad_input, std::span<float> grad_weight,
                std::span<std::byte> workspace) const override {
    Carver carver(workspace.data());
    const bool recomputes = std::ranges::count(batch.groups, nullptr, &ExpertGroup::saved) > 0;
    const BackwardTile tile(carver, shape_, products(), recomputes ? &forward_.inner : nullptr,
                            scratch_bytes(recomputes ? Pass::recompute : Pass::backward));
    EVENKEEL_CHECK(carver.used() <= static_cast<std::int64_t>(workspace.size()));
    std::int64_t most = std::min(products().grad_h.max_rows(), products().grad_x.max_rows());
    if (recomputes) most = std::min(most, forward_.inner.max_rows());
    for (const ExpertGroup& group : batch.groups) {
      if (group.begin == group.end) continue;
      const std::byte* const down = group.prepared + products().grad_x.packed_bytes();
      const auto* down_bias = reinterpret_cast<const float*>(down + products().grad_h.packed_bytes());
      for_each_tile(group, most, [&](Span span) {
        const auto* from = &batch.input_row[static_cast<std::size_t>(span.begin)];
        std::byte* pre = saved_of(group, span);
        if (pre == nullptr) {
          rows::gather(span.rows, from, shape_.hidden, input, tile.x_again(), shape_.type);
          recompute(span, inner_of(group.prepared_again), tile);
          pre = tile.pre_again;
        }
        rows::gather(span.rows, from, shape_.hidden, grad_output, tile.g, shape_.type);
        differentiate_output(batch, group, span, tile, down_bias, weight, grad_weight);
        differentiate_h(batch, group, span, down, tile, weight, pre, grad_weight);
        add_down_gradients(group, span, tile);
        add_input_gradients(span, from, group.prepared, tile, pre, grad_input);
        if (group.gradients.gate_up == nullptr) return;
        rows::gather(span.rows, from, shape_.hidden, input, tile.x(), shape_.type);
        add_gate_up_product(group, span, tile, pre);
      });
    }
  }

  void add_gate_up_gradients(const ExpertBatch& batch, const SplitRows& input,
                             std::span<std::byte> workspace) const override {
    Carver carver(workspace.data());
    const BackwardTile tile(carver, shape_, products(), nullptr, scratch_bytes(Pass::backward));
    EVENKEEL_CHECK(carver.used() <= static_cast<std::int64_t>(workspace.size()));
    for (const ExpertGroup& group : batch.groups) {
      if (group.begin == group.end) continue;
      for_each_tile(group, kTileRows, [&](Span span) {
        rows::gather(span.rows, &batch.input_row[static_cast<std::size_t>(span.begin)], shape_.hidden, input,
                     tile.x(), shape_.type);
        add_gate_up_product(group, span, tile, saved_of(group, span));
      });
    }
  }

 private:
  const BackwardProducts& products() const {
    EVENKEEL_CHECK(backward_.has_value());
    return *backward_;
  }

  std::int64_t scratch_bytes(Pass pass) const {
    if (pass == Pass::forward) return std::max(forward_.inner.scratch_bytes(), forward_.down.scratch_bytes());
    return std::max({products().grad_h.scratch_bytes(), products().grad_x.scratch_bytes(),
                     products().grad_gate_up.scratch_bytes(), products().grad_down.scratch_bytes(),
                     pass == Pass::recompute ? forward_.inner.scratch_bytes() : 0});
  }

  // Gate and up, of a forward pass's prepared weights.
  std::int64_t inner_bytes() const {
    return (is_gated(shape_.activation) ? 2 : 1) * forward_.inner.packed_bytes();
  }

  const void* up_of(const void* gate_up) const {
    return gate_up == nullptr ? nullptr : at(gate_up, shape_.intermediate * shape_.hidden, shape_.type);
  }

  std::int64_t bias_bytes(std::int64_t count) const {
    return shape_.biases ? internal::whole_lines(count * std::int64_t{sizeof(float)}) : 0;
  }

  InnerParts inner_of(const std::byte* prepared) const {
    const std::byte* const biases = prepared + inner_bytes();
    return {prepared, reinterpret_cast<const float*>(biases), biases + bias_bytes(shape_.gate_up_rows())};
  }

  // Where the up half of a row of pre-activations begins.
  std::int64_t up_begin() const { return is_gated(shape_.activation) ? shape_.intermediate : 0; }

  // Where the pre-activations of a tile's rows are saved; null if they are not.
  std::byte* saved_of(const ExpertGroup& group, Span span) const {
    return group.saved == nullptr
               ? nullptr
               : at(group.saved, (span.begin - group.begin) * shape_.gate_up_rows(), shape_.type);
  }

  // h of a tile, block by block.
  void fill_h(Span span, const InnerParts& inner, const ForwardTile& tile, std::byte* saved) const {
    for (std::int64_t i = 0; i < forward_.inner.blocks(); ++i) {
      const RowLadder::Block block = forward_.inner.block(i);
      multiply_inner(i, span.rows, inner, tile.x, tile.gate, tile.up, tile.scratch);
      for (std::int64_t row = 0; row < span.rows; ++row) {
        float* gate = tile.gate + row * block.columns;
        float* up = tile.up + row * block.columns;
        if (saved != nullptr) save(block, gate, up, saved, row);
        activate_row(block, gate, up, tile, row);
      }
    }
  }

  // One block of the pre-activations of a tile's rows, biases added. Without a gate, `gate` is not touched.
  void multiply_inner(std::int64_t index, std::int64_t rows, const InnerParts& parts, const std::byte* x,
                      float* gate, float* up, std::byte* scratch) const {
    const RowLadder& inner = forward_.inner;
    const RowLadder::Block block = inner.block(index);
    const bool gated = is_gated(shape_.activation);
    if (gated) inner.run(index, rows, x, parts.products, gate, scratch);
    inner.run(index, rows, x, parts.products + (gated ? inner.packed_bytes() : 0), up, scratch);
    for (std::int64_t i = 0; shape_.biases && i < rows; ++i) {
      if (gated) rows::add_scaled(block.columns, parts.biases + block.begin, 1.0f, gate + i * block.columns);
      rows::add_scaled(block.columns, parts.biases + up_begin() + block.begin, 1.0f, up + i * block.columns);
    }
  }

  void activate_row(RowLadder::Block block, const float* gate, const float* up, const ForwardTile& tile,
                    std::int64_t row) const {
    std::byte* h = at(tile.h, row * shape_.intermediate + block.begin, shape_.type);
    const bool direct = shape_.type == DataType::f32;
    internal::activate(shape_.activation, block.columns, gate, up,
                       direct ? reinterpret_cast<float*>(h) : tile.h_row);
    if (!direct) rows::from_f32(block.columns, tile.h_row, h, shape_.type);
  }

  // What forward would have saved of a tile's rows.
  void recompute(Span span, const InnerParts& inner, const BackwardTile& tile) const {
    for (std::int64_t i = 0; i < forward_.inner.blocks(); ++i) {
      const RowLadder::Block block = forward_.inner.block(i);
      multiply_inner(i, span.rows, inner, tile.x_again(), tile.gate_block, tile.block, tile.scratch);
      for (std::int64_t row = 0; row < span.rows; ++row)
        save(block, tile.gate_block + row * block.columns, tile.block + row * block.columns, tile.pre_again,
             row);
    }
  }

  // Rounds pre-activations for backward. Rounding must not carry one over the clamp's limit, where the
  // derivative jumps.
  void save(RowLadder::Block block, float* gate, float* up, std::byte* saved, std::int64_t saved_row) const {
    if (shape_.type == DataType::bf16 && shape_.activation == Activation::clamped_swiglu)
      internal::keep_beyond_limit(block.columns, gate, up);
    const std::int64_t row = saved_row * shape_.gate_up_rows() + block.begin;
    if (is_gated(shape_.activation))
      rows::from_f32(block.columns, gate, at(saved, row, shape_.type), shape_.type);
    rows::from_f32(block.columns, up, at(saved, row + up_begin(), shape_.type), shape_.type);
  }

  void fill_output(const ExpertBatch& batch, Span span, const DownParts& down, const ForwardTile& tile,
                   void* output) const {
    for (std::int64_t b = 0; b < forward_.down.blocks(); ++b) {
      const RowLadder::Block block = forward_.down.block(b);
      forward_.down.run(b, span.rows, tile.h, down.product, tile.y(), tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i) {
        float* y = tile.y() + i * block.columns;
        if (shape_.biases) rows::add_scaled(block.columns, down.biases + block.begin, 1.0f, y);
        const std::int64_t row = batch.output_row[static_cast<std::size_t>(span.begin + i)];
        rows::from_f32(block.columns, y, at(output, row * shape_.hidden + block.begin, shape_.type),
                       shape_.type);
      }
    }
  }

  // What y's own gradient gives: that of down's bias, and the bias's share of the weight's.
  void differentiate_output(const ExpertBatch& batch, const ExpertGroup& group, Span span,
                            const BackwardTile& tile, const float* down_bias, std::span<const float> weight,
                            std::span<float> grad_weight) const {
    for (std::int64_t i = 0; i < span.rows; ++i) {
      const auto row = static_cast<std::size_t>(batch.output_row[static_cast<std::size_t>(span.begin + i)]);
      grad_weight[row] = 0;
      if (!shape_.biases) continue;
      rows::to_f32(shape_.hidden, at(tile.g, i * shape_.hidden, shape_.type), shape_.type, tile.g_row);
      grad_weight[row] = rows::dot(shape_.hidden, down_bias, tile.g_row);
      rows::add_scaled(shape_.hidden, tile.g_row, weight[row], group.gradients.down_bias);
    }
  }

  // The gradient of the pre-activations, over them, and of the row's weight, and weight * h, block by block.
  void differentiate_h(const ExpertBatch& batch, const ExpertGroup& group, Span span,
                       const std::byte* prepared, const BackwardTile& tile, std::span<const float> weight,
                       std::byte* pre, std::span<float> grad_weight) const {
    for (std::int64_t b = 0; b < products().grad_h.blocks(); ++b) {
      const RowLadder::Block block = products().grad_h.block(b);
      products().grad_h.run(b, span.rows, tile.g, prepared, tile.block, tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i) {
        const auto row = static_cast<std::size_t>(batch.output_row[static_cast<std::size_t>(span.begin + i)]);
        grad_weight[row] += differentiate_row(i, block, tile, weight[row], pre);
        if (shape_.biases) add_pre_bias_gradients(group, block, tile);
      }
    }
  }

  // One row's share of a block; returns h . d(y . G)/dh over it.
  float differentiate_row(std::int64_t i, RowLadder::Block block, const BackwardTile& tile, float weight,
                          std::byte* pre) const {
    const std::int64_t n = block.columns;
    const float* grad_h = tile.block + i * n;
    const std::int64_t first = i * shape_.gate_up_rows() + block.begin;
    const auto widen = [&](std::int64_t begin, float* to) {
      rows::to_f32(n, at(pre, first + begin, shape_.type), shape_.type, to);
    };
    const auto weigh = [&](float* values, std::byte* to, std::int64_t index) {
      rows::scale(n, weight, values);
      rows::from_f32(n, values, at(to, index, shape_.type), shape_.type);
    };
    if (is_gated(shape_.activation)) widen(0, tile.gate_row);
    widen(up_begin(), tile.up_row);
    internal::activate_backward(shape_.activation, n, tile.gate_row, tile.up_row, grad_h, tile.h_row,
                                tile.grad_gate_row, tile.grad_up_row);
    const float product = rows::dot(n, tile.h_row, grad_h);
    weigh(tile.h_row, tile.weighted_h, i * shape_.intermediate + block.begin);
    if (is_gated(shape_.activation)) weigh(tile.grad_gate_row, pre, first);
    weigh(tile.grad_up_row, pre, first + up_begin());
    return product;
  }
  void add_pre_bias_gradients(const ExpertGroup& group, RowLadder::Block block,
                              const BackwardTile& tile) const {
    float* const sums = group.gradients.gate_up_bias + block.begin;
    if (is_gated(shape_.activation)) rows::add_scaled(block.columns, tile.grad_gate_row, 1.0f, sums);
    rows::add_scaled(block.columns, tile.grad_up_row, 1.0f, sums + up_begin());
  }

  void add_input_gradients(Span span, const std::int32_t* row, const std::byte* prepared,
                           const BackwardTile& tile, const std::byte* grad_pre,
                           const SplitSums& grad_input) const {
    for (std::int64_t b = 0; b < products().grad_x.blocks(); ++b) {
      const RowLadder::Block block = products().grad_x.block(b);
      products().grad_x.run(b, span.rows, grad_pre, prepared, tile.block, tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i)
        rows::add_scaled(block.columns, tile.block + i * block.columns, 1.0f,
                         grad_input.row(row[i], shape_.hidden) + block.begin);
    }
  }

  // The products behind weight gradients take whole vectors of rows.
  void clear_padding(Span span, std::byte* rows, std::int64_t width) const {
    const std::int64_t padding = internal::whole_vector_rows(span.rows) - span.rows;
    std::memset(at(rows, span.rows * width, shape_.type), 0,
                static_cast<std::size_t>(padding * width * bytes_of(shape_.type)));
  }

  void add_down_gradients(const ExpertGroup& group, Span span, const BackwardTile& tile) const {
    clear_padding(span, tile.g, shape_.hidden);
    clear_padding(span, tile.weighted_h, shape_.intermediate);
    products().grad_down.add(span.rows, tile.g, tile.weighted_h, group.gradients.down, tile.scratch);
  }

  // Another group's rows behind those of the tile stand aside meanwhile.
  void add_gate_up_product(const ExpertGroup& group, Span span, const BackwardTile& tile,
                           std::byte* grad_pre) const {
    std::byte* const behind = at(grad_pre, span.rows * shape_.gate_up_rows(), shape_.type);
    const std::int64_t padding = internal::whole_vector_rows(span.rows) - span.rows;
    const auto bytes = static_cast<std::size_t>(padding * saved_bytes_per_position());
    if (group.saved != nullptr) std::memcpy(tile.aside, behind, bytes);
    clear_padding(span, tile.x(), shape_.hidden);
    clear_padding(span, grad_pre, shape_.gate_up_rows());
    products().grad_gate_up.add(span.rows, grad_pre, tile.x(), group.gradients.gate_up, tile.scratch);
    if (group.saved != nullptr) std::memcpy(behind, tile.aside, bytes);
  }

  ExpertShape shape_;
  ForwardProducts forward_;
  std::optional<BackwardProducts> backward_;
  BitwiseReport bitwise_;
};

void require_shape(const ExpertShape& shape) {
  require_sizes(shape);
  // oneDNN 2.6 makes such products with an AMX instruction that the CPU refuses (SIGILL).
  constexpr std::int64_t kFatalInner = 63;
  if (shape.type == DataType::bf16 && (shape.hidden == kFatalInner || shape.intermediate == kFatalInner))
    throw Unsupported(
        "oneDNN cannot multiply bf16 rows of 63 elements; take another hidden or intermediate size");
}

}  // namespace

std::shared_ptr<const ExpertFfn> make_cpu_expert_ffn(const ExpertShape& shape, bool with_backward) {
  using Key = std::tuple<std::int64_t, std::int64_t, Activation, bool, DataType, bool>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const ExpertFfn>> made;

  require_shape(shape);
  const std::lock_guard lock(mutex);
  auto& cached =
      made[{shape.hidden, shape.intermediate, shape.activation, shape.biases, shape.type, with_backward}];
  std::shared_ptr<const ExpertFfn> ffn = cached.lock();
  try {
    if (ffn == nullptr) cached = ffn = std::make_shared<CpuExpertFfn>(shape, with_backward);
  } catch (const dnnl::error& error) {
    throw Unsupported(
        fmt::format("oneDNN cannot multiply {} on this CPU: {}", name_of(shape.type), error.what()));
  }
  return ffn;
}

}  // namespace evenkeel
