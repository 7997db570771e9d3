// Which tensors of a checkpoint belong to experts, by their names: for every layer the tensors that there is
// one of for each expert, and those with a row for each. What is not known is refused, never copied in the
// hope that no expert id is in it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

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

}  // namespace evenkeel::internal
