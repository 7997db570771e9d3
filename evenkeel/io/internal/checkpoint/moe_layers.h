// Finds the tensors of experts in a checkpoint by their names: for every layer, the tensors of single experts
// and those with a row for each expert. Unknown tensors in a MoE layer are refused, since they might contain
// expert ids. Also computes where the bytes of every tensor come from when experts are renumbered.
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
  // Its number in the model, dense layers counted. Layers of multi-token prediction follow the hidden layers,
  // even if the checkpoint numbers them separately.
  int layer = 0;
  // [part][expert]: index into the checkpoint's tensors. A part is "w1.weight", "down_proj.weight", ...
  std::map<std::string, std::map<int, std::size_t>> by_expert;
  // Tensors with a row for each expert: stacked experts, router weights and biases.
  std::vector<std::size_t> by_row;
  // Tensors that contain expert ids.
  std::vector<std::size_t> id_tables;
};

// The MoE layers, ascending. Throws ParseError if a layer lacks a tensor, or a tensor does not have a row for
// each expert; Unsupported if experts differ in type or shape, or a MoE layer has an unknown tensor.
std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const CheckpointConfig& model,
                                      const std::string& folder);

// Where a tensor's bytes come from, and how they are changed.
struct TensorSource {
  std::size_t tensor = 0;                // the tensor that the bytes come from
  std::vector<ExpertId> row_order = {};  // empty: rows keep their order
  // Not empty: the tensor contains expert ids of id_bytes each; id i becomes new_ids[i].
  std::vector<ExpertId> new_ids = {};
  std::size_t id_bytes = 0;

  // Renumbers little-endian ids; `name` is the tensor's name in messages. Throws ParseError for an id that is
  // not an expert's.
  void renumber(std::span<std::byte> ids, const std::string& file, const std::string& name) const;
};

struct ByteRange {
  std::string file;  // in the checkpoint's folder
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  const TensorSource* ids = nullptr;  // not null: the bytes are ids to be renumbered
};

class Renumbering {
 public:
  // `checkpoint` must outlive this object. Until a layer is renumbered, every tensor keeps its bytes.
  explicit Renumbering(const CheckpointTensors& checkpoint);

  // Expert order[n] becomes expert n. Throws Unsupported if a table of ids does not have an integer type.
  void renumber(const MoeLayer& layer, std::span<const ExpertId> order);

  // A whole output file, from its first byte on, as ranges of input files. This object must outlive them.
  std::vector<ByteRange> ranges(std::size_t file) const;

  std::int64_t count_permuted() const;
  std::int64_t count_renamed() const;

 private:
  const CheckpointTensors& checkpoint_;
  std::vector<TensorSource> sources_;  // [tensor]
};

}  // namespace evenkeel::internal
