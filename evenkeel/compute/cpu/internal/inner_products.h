// From rows to pre-activations, x gate^T and x up^T: the first half of forward, and what backward computes
// again where nothing was saved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

class InnerProducts {
 public:
  explicit InnerProducts(const ExpertShape& shape);

  // Gate and up are two runs of it, so that both halves of a block of pre-activations are in the cache
  // together.
  const RowLadder& ladder() const { return ladder_; }

  // Gate, up and their biases, as ExpertFfn::prepare().
  std::int64_t prepared_bytes() const;
  void prepare(const ExpertWeights& weights, std::byte* prepared) const;

  // One block of the pre-activations of `rows` rows, biases added. Without a gate, `gate` is not touched.
  void multiply(std::int64_t index, std::int64_t rows, const std::byte* prepared, const std::byte* x,
                float* gate, float* up, std::byte* scratch) const;

  // Rounds a row of a block for backward; `saved` holds whole rows of pre-activations.
  void save(RowLadder::Block block, float* gate, float* up, std::byte* saved, std::int64_t row) const;

 private:
  std::int64_t product_bytes() const;

  ExpertShape shape_;
  RowLadder ladder_;  // x [m, D] gate^T, x up^T
};

}  // namespace evenkeel::internal
