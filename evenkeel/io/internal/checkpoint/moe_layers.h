// Which tensors of a checkpoint belong to experts, by their names: for every layer the tensors that there is
// one of for each expert, and those with a row for each. What is not known is refused, never copied in the
// hope that no expert id is in it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "evenkeel/io/internal/checkpoint/family.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

struct MoeLayer {
  int layer = 0;  // its number in the model, dense layers counted
  // [part][expert]: index into the checkpoint's tensors. A part is "w1.weight", "down_proj.weight", ...
  std::vector<std::vector<std::size_t>> by_expert;
  // Tensors whose first dimension is the expert: stacked experts, router weights and biases.
  std::vector<std::size_t> by_row;
};

// The MoE layers, ascending. Throws ParseError if a layer lacks a tensor or one has not a row for each
// expert; Unsupported if experts differ in type or shape, or a tensor stands where it is not known.
std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const ModelConfig& model,
                                      const std::string& folder);

}  // namespace evenkeel::internal
