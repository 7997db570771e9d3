// Forward of one expert, a tile of rows at a time: gather, multiply, activate, multiply again, scatter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/cpu/internal/inner_products.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/cpu/internal/tile.h"
#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

class ExpertForward {
 public:
  // `inner` must outlive this.
  ExpertForward(const ExpertShape& shape, const InnerProducts& inner);

  const RowLadder& down() const { return down_; }

  // The weights that `inner` prepares, down and its biases, as ExpertFfn::prepare().
  std::int64_t prepared_bytes() const;
  void prepare(const ExpertWeights& weights, std::byte* prepared) const;

  std::int64_t workspace_bytes() const { return heights_.most_bytes(); }
  std::int64_t least_workspace_bytes() const { return heights_.least_bytes(); }
  // As ExpertFfn::forward().
  void run(const ExpertBatch& batch, const SplitRows& input, void* output,
           std::span<std::byte> workspace) const;

 private:
  // Memory for the rows of a tile. f32 results of products are held for one block of columns. A row alone is
  // read where it is.
  struct Tile {
    float* y() const { return up; }  // when h is whole

    std::byte* x;
    float *gate, *up;
    std::byte *h, *scratch;
  };
  Tile carve(Carver& carver, std::int64_t rows, RowAlone& alone) const;
  std::int64_t bytes_of_tile(std::int64_t rows) const;
  void fill_h(Span span, const std::byte* x, const std::byte* prepared, const Tile& tile,
              std::byte* saved) const;
  void activate_row(RowLadder::Block block, const float* gate, float* up, const Tile& tile,
                    std::int64_t row) const;
  void fill_output(const ExpertBatch& batch, Span span, const std::byte* prepared, const Tile& tile,
                   void* output) const;

  ExpertShape shape_;
  const InnerProducts& inner_;
  RowLadder down_;  // h [m, F] down^T
  TileHeights heights_;
};

}  // namespace evenkeel::internal
