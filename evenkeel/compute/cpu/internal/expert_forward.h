// Forward of one expert, a tile of rows at a time: gather, multiply, activate, multiply again, scatter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/inner_products.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/cpu/internal/tile.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

class ExpertForward {
 public:
  // `inner` must outlive this.
  ExpertForward(const ExpertShape& shape, const InnerProducts& inner)
      : shape_(shape),
        inner_(inner),
        down_(shape.intermediate, shape.hidden, shape.type, RowLadder::Plain::out_by_in,
              RowLadder::Bits::of_the_row_alone),
        heights_({&inner.ladder(), &down_}, forward_tile_rows(product_type(shape.type)),
                 [&](std::int64_t rows) { return bytes_of_tile(rows); }) {}

  const RowLadder& down() const { return down_; }

  // The weights prepared by `inner`, then down and its biases; see ExpertFfn::prepare().
  std::int64_t prepared_bytes() const {
    return inner_.prepared_bytes() + down_.packed_bytes() + bias_bytes(shape_, shape_.hidden);
  }
  void prepare(const ExpertWeights& weights, std::byte* prepared) const {
    inner_.prepare(weights, prepared);
    std::byte* const down = prepared + inner_.prepared_bytes();
    if (weights.down != nullptr) down_.pack(weights.down, down);
    if (weights.down_bias != nullptr)
      rows::to_f32(shape_.hidden, weights.down_bias, shape_.type,
                   reinterpret_cast<float*>(down + down_.packed_bytes()));
  }

  std::int64_t workspace_bytes() const { return heights_.most_bytes(); }
  std::int64_t least_workspace_bytes() const { return heights_.least_bytes(); }

  // See ExpertFfn::forward().
  void run(const ExpertBatch& batch, const SplitRows& input, void* output,
           std::span<std::byte> workspace) const {
    const std::int64_t row_limit = heights_.rows_in(std::ssize(workspace));
    Carver carver(workspace.data());
    SingleRowScratch single_row;
    const Tile tile = carve(carver, row_limit, single_row);
    const std::int64_t most = std::min(inner_.ladder().max_rows(row_limit), down_.max_rows(row_limit));
    for (const ExpertGroup& group : batch.groups)
      for_each_tile(group, most, [&](Span span) {
        const std::int32_t* const row = &batch.input_row[static_cast<std::size_t>(span.begin)];
        if (row_limit > 1) rows::gather(span.rows, row, shape_.hidden, input, tile.x, shape_.type);
        const std::byte* const x =
            row_limit > 1 ? tile.x : input.row(*row, shape_.hidden * bytes_of(shape_.type));
        fill_h(span, x, group.prepared, tile, saved_of(shape_, group, span));
        fill_output(batch, span, group.prepared + inner_.prepared_bytes(), tile, output);
      });
  }

 private:
  // Memory for the rows of a tile. f32 results of products are held for one block of columns. A single row is
  // read in place.
  struct Tile {
    float* y() const { return up; }  // valid once h is complete

    std::byte* x;
    float *gate, *up;
    std::byte *h, *scratch;
  };
  Tile carve(Carver& carver, std::int64_t rows, SingleRowScratch& single_row) const {
    const std::int64_t inner_block = inner_.ladder().widest_block();
    const std::int64_t block = std::max(inner_block, down_.widest_block());
    const std::int64_t element = bytes_of(shape_.type);
    const std::int64_t scratch = std::max(inner_.ladder().scratch_bytes(rows), down_.scratch_bytes(rows));
    Tile tile;
    tile.x = carver.take<std::byte>(rows == 1 ? 0 : rows * shape_.hidden * element);
    tile.h = carver.take<std::byte>(rows * shape_.intermediate * element);
    if (SingleRowScratch::fits(rows, scratch)) {
      tile.gate = single_row.gate.data();
      tile.up = single_row.up.data();
      tile.scratch = single_row.scratch.data();
    } else {
      tile.gate = carver.take<float>(is_gated(shape_.activation) ? rows * inner_block : 0);
      tile.up = carver.take<float>(rows * block);
      tile.scratch = carver.take<std::byte>(scratch);
    }
    return tile;
  }

  std::int64_t bytes_of_tile(std::int64_t rows) const {
    Carver carver(nullptr);
    SingleRowScratch single_row;
    carve(carver, rows, single_row);
    return carver.used();
  }

  // Computes h of a tile, block by block.
  void fill_h(Span span, const std::byte* x, const std::byte* prepared, const Tile& tile,
              std::byte* saved) const {
    for (std::int64_t i = 0; i < inner_.ladder().blocks(); ++i) {
      const RowLadder::Block block = inner_.ladder().block(i);
      inner_.multiply(i, span.rows, prepared, x, tile.gate, tile.up, tile.scratch);
      for (std::int64_t row = 0; row < span.rows; ++row) {
        float* gate = tile.gate + row * block.columns;
        float* up = tile.up + row * block.columns;
        if (saved != nullptr) inner_.save(block, gate, up, saved, row);
        activate_row(block, gate, up, tile, row);
      }
    }
  }

  // If h must be rounded, its f32 values are first written over `up`.
  void activate_row(RowLadder::Block block, const float* gate, float* up, const Tile& tile,
                    std::int64_t row) const {
    std::byte* h = rows::at(tile.h, row * shape_.intermediate + block.begin, shape_.type);
    const bool direct = shape_.type == DataType::f32;
    activate(shape_.activation, block.columns, gate, up, direct ? reinterpret_cast<float*>(h) : up);
    if (!direct) rows::from_f32(block.columns, up, h, shape_.type);
  }

  void fill_output(const ExpertBatch& batch, Span span, const std::byte* prepared, const Tile& tile,
                   void* output) const {
    const auto* const biases = reinterpret_cast<const float*>(prepared + down_.packed_bytes());
    for (std::int64_t b = 0; b < down_.blocks(); ++b) {
      const RowLadder::Block block = down_.block(b);
      down_.run(b, span.rows, tile.h, prepared, tile.y(), tile.scratch);
      for (std::int64_t i = 0; i < span.rows; ++i) {
        float* y = tile.y() + i * block.columns;
        if (shape_.biases) rows::add_scaled(block.columns, biases + block.begin, 1.0f, y);
        const std::int64_t row = batch.output_row[static_cast<std::size_t>(span.begin + i)];
        rows::from_f32(block.columns, y, rows::at(output, row * shape_.hidden + block.begin, shape_.type),
                       shape_.type);
      }
    }
  }

  ExpertShape shape_;
  const InnerProducts& inner_;
  RowLadder down_;  // h [m, F] down^T
  TileHeights heights_;
};

}  // namespace evenkeel::internal
