// Where the bytes of every tensor come from once experts are renumbered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

struct ByteRange {
  std::size_t file = 0;  // of the checkpoint's weight files
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

class Renumbering {
 public:
  // Both must outlive this. Until a layer is renumbered, every tensor keeps its bytes.
  explicit Renumbering(const CheckpointTensors& checkpoint);

  // Expert order[n] becomes expert n. The order must outlive this.
  void renumber(const MoeLayer& layer, std::span<const ExpertId> order);

  // The whole of one file, from its first byte on, in pieces of files as they are.
  std::vector<ByteRange> ranges(std::size_t file) const;

  std::int64_t count_permuted() const;
  std::int64_t count_renamed() const;

 private:
  void append(std::size_t tensor, std::vector<ByteRange>& ranges) const;

  const CheckpointTensors& checkpoint_;
  std::vector<std::size_t> source_;                   // [tensor] the one whose bytes it gets
  std::vector<std::span<const ExpertId>> row_order_;  // [tensor] empty: rows as they are
};

}  // namespace evenkeel::internal
