// Backward of one expert, a tile of rows at a time: the gradients of its pre-activations, its weights, its
// rows and their router weights. What forward did not save is recomputed first.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/gradient_product.h"
#include "evenkeel/compute/cpu/internal/inner_products.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/cpu/internal/tile.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

// The arguments of ExpertFfn::backward() that are rows, or have one value for each row.
struct BackwardRows {
  const SplitRows& input;
  const SplitRows& grad_output;
  std::span<const float> weight;
  const SplitSums& grad_input;
  std::span<float> grad_weight;
};

class ExpertBackward {
 public:
  // `inner` must outlive this.
  ExpertBackward(const ExpertShape& s, const InnerProducts& inner)
      : shape_(s),
        inner_(inner),
        grad_h_(s.hidden, s.intermediate, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_x_(s.gate_up_rows(), s.hidden, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_gate_up_(s.gate_up_rows(), s.hidden, s.type),
        grad_down_(s.hidden, s.intermediate, s.type),
        heights_({&grad_h_, &grad_x_}, kTileRows,
                 [&](std::int64_t rows) { return bytes_of_tile(rows, false); }),
        recompute_heights_({&grad_h_, &grad_x_, &inner.ladder()}, kRecomputeTileRows,
                           [&](std::int64_t rows) { return bytes_of_tile(rows, true); }) {}

  // gate_up, down and its biases; see ExpertFfn::prepare().
  std::int64_t prepared_bytes() const {
    return grad_x_.packed_bytes() + grad_h_.packed_bytes() + bias_bytes(shape_, shape_.hidden);
  }
  void prepare(const ExpertWeights& weights, std::byte* prepared) const {
    std::byte* const down = prepared + grad_x_.packed_bytes();
    if (weights.gate_up != nullptr) grad_x_.pack(weights.gate_up, prepared);
    if (weights.down != nullptr) grad_h_.pack(weights.down, down);
    if (weights.down_bias != nullptr)
      rows::to_f32(shape_.hidden, weights.down_bias, shape_.type,
                   reinterpret_cast<float*>(down + grad_h_.packed_bytes()));
  }

  // `recompute` includes space for groups that have nothing saved.
  std::int64_t workspace_bytes(bool recompute) const { return heights(recompute).most_bytes(); }
  std::int64_t least_workspace_bytes(bool recompute) const { return heights(recompute).least_bytes(); }

  // See ExpertFfn::backward().
  void run(const ExpertBatch& batch, const BackwardRows& rows, bool recompute,
           std::span<std::byte> workspace) const {
    const std::int64_t row_limit = heights(recompute).rows_in(std::ssize(workspace));
    Carver carver(workspace.data());
    SingleRowScratch single_row;
    const Tile tile = carve(carver, row_limit, recompute, single_row);
    std::int64_t most = std::min(grad_h_.max_rows(row_limit), grad_x_.max_rows(row_limit));
    if (recompute) most = std::min(most, inner_.ladder().max_rows(row_limit));
    for (const ExpertGroup& group : batch.groups)
      for_each_tile(group, most, [&](Span span) {
        std::byte* const pre = pre_activations(batch, group, span, rows.input, tile);
        const std::byte* const g = gathered(batch, span, rows.grad_output, tile, tile.g);
        differentiate_output(batch, group, span, tile, g, rows);
        differentiate_h(batch, group, span, tile, g, pre, rows);
        add_down_gradients(group, span, tile, g);
        add_input_gradients(batch, group, span, tile, pre, rows.grad_input);
        add_gate_up_gradients(group, span, tile, gathered(batch, span, rows.input, tile, tile.x()), pre);
      });
  }

 private:
  // Memory for the rows of a tile. Rows that are not needed at the same time share space: the input is
  // gathered in the space of weighted_h to recompute pre-activations, before h exists, and in the space of G
  // for the weights' gradient, when G is no longer needed. f32 results of products are consumed block by
  // block. The gradient of pre-activations overwrites the pre-activations. A single row is read in place.
  struct Tile {
    std::byte* x() const { return g; }
    std::byte* recompute_x() const { return weighted_h; }

    std::int64_t rows;  // the most rows
    std::byte *g, *weighted_h, *recomputed_pre, *aside;
    float *block, *gate, *g_row;
    std::byte* scratch;
  };
  // Some columns of a row, in f32: few enough for the stack, enough to hide the overhead of calls.
  struct Piece {
    static constexpr std::int64_t kMost = 128;
    RowLadder::Block columns;
    alignas(64) std::array<float, kMost> gate, up, h;
  };

  // The input rows of a span's positions.
  static const std::int32_t* input_rows(const ExpertBatch& batch, Span span) {
    return &batch.input_row[static_cast<std::size_t>(span.begin)];
  }
  static std::size_t output_row(const ExpertBatch& batch, Span span, std::int64_t i) {
    return static_cast<std::size_t>(batch.output_row[static_cast<std::size_t>(span.begin + i)]);
  }

  const TileHeights& heights(bool recompute) const { return recompute ? recompute_heights_ : heights_; }

  std::int64_t bytes_of_tile(std::int64_t rows, bool recompute) const {
    Carver carver(nullptr);
    SingleRowScratch single_row;
    carve(carver, rows, recompute, single_row);
    return carver.used();
  }

  Tile carve(Carver& carver, std::int64_t rows, bool recompute, SingleRowScratch& single_row) const {
    const ExpertShape& s = shape_;
    const std::int64_t element = bytes_of(s.type);
    const std::int64_t gathered = rows > 1 ? rows * s.hidden * element : 0;
    const std::int64_t scratch = scratch_bytes(rows, recompute);
    Tile tile;
    tile.rows = rows;
    tile.g = carver.take<std::byte>(gathered);
    tile.weighted_h =
        carver.take<std::byte>(std::max(rows * s.intermediate * element, recompute ? gathered : 0));
    tile.recomputed_pre = carver.take<std::byte>(recompute ? rows * s.gate_up_rows() * element : 0);
    tile.aside = carver.take<std::byte>(rows > GradientProduct::kFewRows ? margin_bytes(s) : 0);
    tile.g_row = carver.take<float>(s.biases ? s.hidden : 0);
    if (SingleRowScratch::fits(rows, scratch)) {
      tile.block = single_row.up.data();
      tile.gate = single_row.gate.data();
      tile.scratch = single_row.scratch.data();
    } else {
      const std::int64_t inner = recompute ? inner_.ladder().widest_block() : 0;
      tile.block =
          carver.take<float>(rows * std::max({grad_h_.widest_block(), grad_x_.widest_block(), inner}));
      tile.gate = carver.take<float>(is_gated(s.activation) ? rows * inner : 0);
      tile.scratch = carver.take<std::byte>(scratch);
    }
    return tile;
  }

  std::int64_t scratch_bytes(std::int64_t rows, bool recompute) const {
    return std::max({grad_h_.scratch_bytes(rows), grad_x_.scratch_bytes(rows),
                     grad_gate_up_.scratch_bytes(rows), grad_down_.scratch_bytes(rows),
                     recompute ? inner_.ladder().scratch_bytes(rows) : 0});
  }

  const std::byte* gathered(const ExpertBatch& batch, Span span, const SplitRows& input, const Tile& tile,
                            std::byte* to) const {
    const std::int32_t* const row = input_rows(batch, span);
    if (tile.rows == 1) return input.row(*row, shape_.hidden * bytes_of(shape_.type));
    rows::gather(span.rows, row, shape_.hidden, input, to, shape_.type);
    return to;
  }

  // The pre-activations that forward saved; recomputes them if it did not.
  std::byte* pre_activations(const ExpertBatch& batch, const ExpertGroup& group, Span span,
                             const SplitRows& input, const Tile& tile) const {
    if (std::byte* const saved = saved_of(shape_, group, span)) return saved;
    const std::byte* const x = gathered(batch, span, input, tile, tile.recompute_x());
    for (std::int64_t i = 0; i < inner_.ladder().blocks(); ++i) {
      const RowLadder::Block block = inner_.ladder().block(i);
      inner_.multiply(i, span.rows, group.recompute_prepared, x, tile.gate, tile.block, tile.scratch);
      for (std::int64_t row = 0; row < span.rows; ++row)
        inner_.save(block, tile.gate + row * block.columns, tile.block + row * block.columns,
                    tile.recomputed_pre, row);
    }
    return tile.recomputed_pre;
  }

  // Gradients that follow directly from y's gradient: that of down's bias, and the bias's part of the row
  // weight's gradient.
  void differentiate_output(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                            const std::byte* g, const BackwardRows& rows) const {
    const auto* const down_bias =
        reinterpret_cast<const float*>(group.prepared + grad_x_.packed_bytes() + grad_h_.packed_bytes());
    for (std::int64_t i = 0; i < span.rows; ++i) {
      const std::size_t row = output_row(batch, span, i);
      rows.grad_weight[row] = 0;
      if (!shape_.biases) continue;
      rows::to_f32(shape_.hidden, rows::at(g, i * shape_.hidden, shape_.type), shape_.type, tile.g_row);
      rows.grad_weight[row] = rows::dot(shape_.hidden, down_bias, tile.g_row);
      rows::add_scaled(shape_.hidden, tile.g_row, rows.weight[row], group.gradients.down_bias);
    }
  }

  // Computes the gradient of the pre-activations (in their place), that of the row's weight, and weight * h,
  // block by block.
  void differentiate_h(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                       const std::byte* g, std::byte* pre, const BackwardRows& rows) const {
    const std::byte* const down = group.prepared + grad_x_.packed_bytes();
    for (std::int64_t b = 0; b < grad_h_.blocks(); ++b) {
      const RowLadder::Block block = grad_h_.block(b);
      grad_h_.run(b, span.rows, g, down, tile.block, tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i) {
        const std::size_t row = output_row(batch, span, i);
        const float* const grad_h = tile.block + i * block.columns;
        for (std::int64_t done = 0; done < block.columns; done += Piece::kMost) {
          Piece piece;
          piece.columns = {block.begin + done, std::min(Piece::kMost, block.columns - done)};
          rows.grad_weight[row] += differentiate_piece(i, grad_h + done, tile, rows.weight[row], pre, piece);
          if (shape_.biases) add_pre_bias_gradients(group, piece);
        }
      }
    }
  }

  // Differentiates a piece of one row; returns h . d(y . G)/dh over it.
  float differentiate_piece(std::int64_t i, const float* grad_h, const Tile& tile, float weight,
                            std::byte* pre, Piece& piece) const {
    const std::int64_t n = piece.columns.columns;
    const std::int64_t first = i * shape_.gate_up_rows() + piece.columns.begin;
    const std::int64_t up = first + up_begin(shape_);
    const bool gated = is_gated(shape_.activation);
    const auto widen = [&](std::int64_t index, float* to) {
      rows::to_f32(n, rows::at(pre, index, shape_.type), shape_.type, to);
    };
    const auto weigh = [&](float* values, std::byte* to, std::int64_t index) {
      rows::scale(n, weight, values);
      rows::from_f32(n, values, rows::at(to, index, shape_.type), shape_.type);
    };
    float* const gate_f32 = piece.gate.data();
    float* const up_f32 = piece.up.data();
    float* const h_f32 = piece.h.data();
    if (gated) widen(first, gate_f32);
    widen(up, up_f32);
    activate_backward(shape_.activation, n, gate_f32, up_f32, grad_h, h_f32, gate_f32, up_f32);
    const float product = rows::dot(n, h_f32, grad_h);
    weigh(h_f32, tile.weighted_h, i * shape_.intermediate + piece.columns.begin);
    if (gated) weigh(gate_f32, pre, first);
    weigh(up_f32, pre, up);
    return product;
  }

  // `piece` now holds the gradients in place of its pre-activations.
  void add_pre_bias_gradients(const ExpertGroup& group, const Piece& piece) const {
    const auto [begin, columns] = piece.columns;
    float* const sums = group.gradients.gate_up_bias + begin;
    if (is_gated(shape_.activation)) rows::add_scaled(columns, piece.gate.data(), 1.0f, sums);
    rows::add_scaled(columns, piece.up.data(), 1.0f, sums + up_begin(shape_));
  }

  void add_down_gradients(const ExpertGroup& group, Span span, const Tile& tile, const std::byte* g) const {
    clear_padding(span, tile.g, shape_.hidden);
    clear_padding(span, tile.weighted_h, shape_.intermediate);
    grad_down_.add(span.rows, g, tile.weighted_h, group.gradients.down, tile.scratch);
  }

  void add_input_gradients(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                           const std::byte* grad_pre, const SplitSums& grad_input) const {
    const std::int32_t* const row = input_rows(batch, span);
    for (std::int64_t b = 0; b < grad_x_.blocks(); ++b) {
      const RowLadder::Block block = grad_x_.block(b);
      grad_x_.run(b, span.rows, grad_pre, group.prepared, tile.block, tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i)
        rows::add_scaled(block.columns, tile.block + i * block.columns, 1.0f,
                         grad_input.row(row[i], shape_.hidden) + block.begin);
    }
  }

  // Rows after the tile may belong to another group, so they are saved in `aside` and restored.
  void add_gate_up_gradients(const ExpertGroup& group, Span span, const Tile& tile, const std::byte* x,
                             std::byte* grad_pre) const {
    const std::int64_t width = shape_.gate_up_rows();
    std::byte* const behind = rows::at(grad_pre, span.rows * width, shape_.type);
    const std::int64_t padding = GradientProduct::padding(span.rows);
    const auto bytes = static_cast<std::size_t>(padding * width * bytes_of(shape_.type));
    if (group.saved != nullptr) std::memcpy(tile.aside, behind, bytes);
    clear_padding(span, tile.x(), shape_.hidden);
    clear_padding(span, grad_pre, width);
    grad_gate_up_.add(span.rows, grad_pre, x, group.gradients.gate_up, tile.scratch);
    if (group.saved != nullptr) std::memcpy(behind, tile.aside, bytes);
  }

  // The products for weight gradients need rows of zeros after the tile's rows.
  void clear_padding(Span span, std::byte* rows, std::int64_t width) const {
    const std::int64_t padding = GradientProduct::padding(span.rows);
    std::memset(rows::at(rows, span.rows * width, shape_.type), 0,
                static_cast<std::size_t>(padding * width * bytes_of(shape_.type)));
  }

  ExpertShape shape_;
  const InnerProducts& inner_;
  RowLadder grad_h_;  // G [m, D] down [D, F]
  RowLadder grad_x_;  // grad_pre [m, 2F] gate_up [2F, D]
  GradientProduct grad_gate_up_;
  GradientProduct grad_down_;
  TileHeights heights_, recompute_heights_;
};

}  // namespace evenkeel::internal
