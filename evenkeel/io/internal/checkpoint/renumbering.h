// Where the bytes of every tensor come from once experts are renumbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

// The bytes that a tensor gets, and what becomes of them.
struct TensorSource {
  std::size_t tensor = 0;                // whose bytes they are
  std::vector<ExpertId> row_order = {};  // empty: rows as they are
  // Not empty: the bytes are ids of experts, of so many bytes each, which become these.
  std::vector<ExpertId> new_ids = {};
  std::size_t id_bytes = 0;

  // Little-endian numbers; `name` is what a message calls theirs. Throws ParseError for one that is no
  // expert's.
  void renumber(std::span<std::byte> ids, const std::string& file, const std::string& name) const;
};

struct ByteRange {
  std::size_t file = 0;  // of the checkpoint's weight files
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  const TensorSource* ids = nullptr;  // not null: its bytes are ids to be renumbered
};

class Renumbering {
 public:
  // Which must outlive this. Until a layer is renumbered, every tensor keeps its bytes.
  explicit Renumbering(const CheckpointTensors& checkpoint);

  // Expert order[n] becomes expert n. Throws Unsupported if a table of ids is not of whole numbers.
  void renumber(const MoeLayer& layer, std::span<const ExpertId> order);

  // The whole of one file, from its first byte on, in pieces of files. This must outlive them.
  std::vector<ByteRange> ranges(std::size_t file) const;

  std::int64_t count_permuted() const;
  std::int64_t count_renamed() const;

 private:
  const CheckpointTensors& checkpoint_;
  std::vector<TensorSource> sources_;  // [tensor]
};

}  // namespace evenkeel::internal
