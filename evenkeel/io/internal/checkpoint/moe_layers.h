// Which tensors of a checkpoint belong to experts, by their names: for every layer the tensors that there is
// one of for each expert, and those with a row for each. What is not known is refused, never copied in the
// hope that no expert id is in it. And where the bytes of every tensor come from once experts are renumbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

struct MoeLayer {
  // Its number in the model, dense layers counted. Layers of multi-token prediction that are numbered by
  // themselves go on from the hidden layers.
  int layer = 0;
  // [part][expert]: index into the checkpoint's tensors. A part is "w1.weight", "down_proj.weight", ...
  std::map<std::string, std::map<int, std::size_t>> by_expert;
  // Tensors with a row for each expert: stacked experts, router weights and biases.
  std::vector<std::size_t> by_row;
  // Tensors whose numbers are ids of experts.
  std::vector<std::size_t> id_tables;
};

// The MoE layers, ascending. Throws ParseError if a layer lacks a tensor or one has not a row for each
// expert; Unsupported if experts differ in type or shape, or a tensor stands where it is not known.
std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const CheckpointConfig& model,
                                      const std::string& folder);

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
  std::string file;  // in the checkpoint's folder
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
