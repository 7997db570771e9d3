// Computes pre-activations from rows, x gate^T and x up^T: the first half of forward, which backward repeats
// if nothing was saved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/cpu/internal/tile.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

class InnerProducts {
 public:
  explicit InnerProducts(const ExpertShape& shape)
      : shape_(shape),
        ladder_(shape.hidden, shape.intermediate, shape.type, RowLadder::Plain::out_by_in,
                RowLadder::Bits::of_the_row_alone) {}

  // Used for gate and for up in turn, so that both halves of a block of pre-activations are in the cache.
  const RowLadder& ladder() const { return ladder_; }

  // Gate, up and their biases; see ExpertFfn::prepare().
  std::int64_t prepared_bytes() const { return product_bytes() + bias_bytes(shape_, shape_.gate_up_rows()); }
  void prepare(const ExpertWeights& weights, std::byte* prepared) const {
    if (weights.gate_up != nullptr) {
      ladder_.pack(weights.gate_up, prepared);
      if (is_gated(shape_.activation))
        ladder_.pack(rows::at(weights.gate_up, shape_.intermediate * shape_.hidden, shape_.type),
                     prepared + ladder_.packed_bytes());
    }
    if (weights.gate_up_bias != nullptr)
      rows::to_f32(shape_.gate_up_rows(), weights.gate_up_bias, shape_.type,
                   reinterpret_cast<float*>(prepared + product_bytes()));
  }

  // Computes one block of the pre-activations of `rows` rows, with biases. Without a gate, `gate` is not
  // used.
  void multiply(std::int64_t index, std::int64_t rows, const std::byte* prepared, const std::byte* x,
                float* gate, float* up, std::byte* scratch) const {
    const RowLadder::Block block = ladder_.block(index);
    const bool gated = is_gated(shape_.activation);
    if (gated) ladder_.run(index, rows, x, prepared, gate, scratch);
    ladder_.run(index, rows, x, prepared + (gated ? ladder_.packed_bytes() : 0), up, scratch);
    if (!shape_.biases) return;
    const auto* const biases = reinterpret_cast<const float*>(prepared + product_bytes()) + block.begin;
    for (std::int64_t i = 0; i < rows; ++i) {
      if (gated) rows::add_scaled(block.columns, biases, 1.0f, gate + i * block.columns);
      rows::add_scaled(block.columns, biases + up_begin(shape_), 1.0f, up + i * block.columns);
    }
  }

  // Rounds and saves a block of a row for backward; `saved` holds complete rows of pre-activations. Rounding
  // must not move a pre-activation across the clamp's limit, where the derivative jumps.
  void save(RowLadder::Block block, float* gate, float* up, std::byte* saved, std::int64_t row) const {
    if (shape_.type == DataType::bf16 && shape_.activation == Activation::clamped_swiglu)
      keep_beyond_limit(block.columns, gate, up);
    const std::int64_t first = row * shape_.gate_up_rows() + block.begin;
    if (is_gated(shape_.activation))
      rows::from_f32(block.columns, gate, rows::at(saved, first, shape_.type), shape_.type);
    rows::from_f32(block.columns, up, rows::at(saved, first + up_begin(shape_), shape_.type), shape_.type);
  }

 private:
  std::int64_t product_bytes() const {
    return (is_gated(shape_.activation) ? 2 : 1) * ladder_.packed_bytes();
  }

  ExpertShape shape_;
  RowLadder ladder_;  // x [m, D] gate^T, x up^T
};

}  // namespace evenkeel::internal
