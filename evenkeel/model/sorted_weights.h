// A model's tensors sorted by what they are for, by the words of their names and their shapes.
//
// Method     The path below "layers.N." says the block: shared experts, experts, norms, attention, router or
//            network, the first whose words are there. Outside of layers: norms, embedding, head. Tensors of
//            one expert each ("experts.7.w1.weight") become one of all. What has no such word is `other`.
// Cost       Linear in the names.
// Checked    against all model types with experts that transformers 5.24 builds: tests/torch/memory_test.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/model/model_description.h"

namespace evenkeel {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  // Which axis tensor parallelism cuts, where a plan says it; by_name: as the kind and the name usually have
  // it.
  static constexpr int by_name = -2;
  int axis = by_name;
  bool trained = true;
  std::int64_t number_bytes = 0;  // 0: not whole, or not known
};

// Fills weights, and from them what they say better than a config: has_experts, prediction_layers, the
// experts' number, width, gates and biases, the widths of shared experts and dense layers. Of `model` are
// read num_layers, as many prediction_layers as there may be, hidden, tied_embeddings, experts.count (0: by
// the tensors) and the key heads. Throws InvalidArgument: no tensor is an expert's, a layer or an expert is
// missing, twice or beyond the config's number, or experts of a layer differ.
void take_weights(ModelDescription& model, std::span<const NamedTensor> tensors);

}  // namespace evenkeel
