// Backward of one expert, a tile of rows at a time: the gradients of its pre-activations, its weights, its
// rows and their weights. What forward did not save is computed again first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/cpu/internal/gradient_product.h"
#include "evenkeel/compute/cpu/internal/inner_products.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/cpu/internal/tile.h"
#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

// Rows that a backward pass reads and writes besides its groups, as ExpertFfn::backward().
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
  ExpertBackward(const ExpertShape& shape, const InnerProducts& inner);

  // gate_up, down and its biases, as ExpertFfn::prepare().
  std::int64_t prepared_bytes() const;
  void prepare(const ExpertWeights& weights, std::byte* prepared) const;

  // `again`: with space for groups that have nothing saved.
  std::int64_t workspace_bytes(bool again) const { return heights(again).most_bytes(); }
  std::int64_t least_workspace_bytes(bool again) const { return heights(again).least_bytes(); }
  // As ExpertFfn::backward().
  void run(const ExpertBatch& batch, const BackwardRows& rows, bool again,
           std::span<std::byte> workspace) const;

 private:
  // Memory for the rows of a tile. Rows that are not wanted at the same time share their space. The input is
  // gathered once to compute pre-activations again, before there is an h, and once for the weights' gradient,
  // when G is done with. f32 results of products are used up block by block. The gradient of pre-activations
  // is written over the pre-activations. A row alone is read where it is.
  struct Tile {
    std::byte* x() const { return g; }
    std::byte* x_again() const { return weighted_h; }

    std::int64_t rows;  // most
    std::byte *g, *weighted_h, *pre_again, *aside;
    float *block, *gate, *g_row;
    std::byte* scratch;
  };
  // Some columns of a row, in f32.
  struct Piece;
  const TileHeights& heights(bool again) const { return again ? heights_again_ : heights_; }
  std::int64_t bytes_of_tile(std::int64_t rows, bool again) const;
  Tile carve(Carver& carver, std::int64_t rows, bool again, RowAlone& alone) const;
  std::int64_t scratch_bytes(std::int64_t rows, bool again) const;
  std::byte* pre_activations(const ExpertBatch& batch, const ExpertGroup& group, Span span,
                             const SplitRows& input, const Tile& tile) const;
  const std::byte* gathered(const ExpertBatch& batch, Span span, const SplitRows& input, const Tile& tile,
                            std::byte* to) const;
  void differentiate_output(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                            const std::byte* g, const BackwardRows& rows) const;
  void differentiate_h(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                       const std::byte* g, std::byte* pre, const BackwardRows& rows) const;
  float differentiate_piece(std::int64_t i, const float* grad_h, const Tile& tile, float weight,
                            std::byte* pre, Piece& piece) const;
  void add_pre_bias_gradients(const ExpertGroup& group, const Piece& piece) const;
  void add_input_gradients(const ExpertBatch& batch, const ExpertGroup& group, Span span, const Tile& tile,
                           const std::byte* grad_pre, const SplitSums& grad_input) const;
  void clear_padding(Span span, std::byte* rows, std::int64_t width) const;
  void add_down_gradients(const ExpertGroup& group, Span span, const Tile& tile, const std::byte* g) const;
  void add_gate_up_gradients(const ExpertGroup& group, Span span, const Tile& tile, const std::byte* x,
                           std::byte* grad_pre) const;

  ExpertShape shape_;
  const InnerProducts& inner_;
  RowLadder grad_h_;  // G [m, D] down [D, F]
  RowLadder grad_x_;  // grad_pre [m, 2F] gate_up [2F, D]
  GradientProduct grad_gate_up_;
  GradientProduct grad_down_;
  TileHeights heights_, heights_again_;
};

}  // namespace evenkeel::internal
