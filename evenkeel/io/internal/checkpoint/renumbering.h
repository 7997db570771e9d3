// Where the bytes of every tensor come from once experts are renumbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

// Numbers in a tensor that are ids of experts, and what they become.
struct IdTable {
  std::string tensor;
  std::int64_t width = 0;  // bytes of one
  std::vector<ExpertId> new_ids;

  // Little-endian numbers; `file` is what a message calls theirs. Throws ParseError for one that is no
  // expert's.
  void renumber(std::span<std::byte> bytes, const std::string& file) const;
};

struct ByteRange {
  std::size_t file = 0;  // of the checkpoint's weight files
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  const IdTable* ids = nullptr;  // not null: its bytes are ids to be renumbered
};

class Renumbering {
 public:
  // Both must outlive this. Until a layer is renumbered, every tensor keeps its bytes.
  explicit Renumbering(const CheckpointTensors& checkpoint);

  // Expert order[n] becomes expert n. The order must outlive this. Throws Unsupported if a table of ids is
  // not of whole numbers.
  void renumber(const MoeLayer& layer, std::span<const ExpertId> order);

  // The whole of one file, from its first byte on, in pieces of files. This must outlive them.
  std::vector<ByteRange> ranges(std::size_t file) const;

  std::int64_t count_permuted() const;
  std::int64_t count_renamed() const;

 private:
  void append(std::size_t tensor, std::vector<ByteRange>& ranges) const;

  const CheckpointTensors& checkpoint_;
  std::vector<std::size_t> source_;                   // [tensor] the one whose bytes it gets
  std::vector<std::span<const ExpertId>> row_order_;  // [tensor] empty: rows as they are
  std::map<std::size_t, IdTable> id_tables_;          // [tensor]
};

}  // namespace evenkeel::internal
