// Sorts a model's tensors by purpose, from the words of their names and from their shapes.
//
// Method     The path below "layers.N." gives the block. Shared experts, experts, norms, attention, router
//            and network are tried in this order; the first with a matching word is taken. Outside of layers:
//            norms, embedding, head. Tensors of single experts ("experts.7.w1.weight") become one tensor of
//            all experts. A name without a known word is `other`.
// Cost       Linear in the number of names.
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
  // The axis that tensor parallelism cuts. by_name: no plan gives it, so it is the usual axis for the kind
  // and name.
  static constexpr int by_name = -2;
  int axis = by_name;
  bool trained = true;
  std::int64_t number_bytes = 0;  // bytes of one number; 0: not a whole number of bytes, or not known
};

// Sets model.weights, and the figures that the tensors tell better than a config: has_experts,
// prediction_layers, the experts' number, width, gates and biases, the widths of shared experts and dense
// layers. It reads from `model`: num_layers, the size of prediction_layers as an upper limit, hidden,
// tied_embeddings, experts.count (0: counted from the tensors) and the key heads. Throws InvalidArgument if
// no tensor belongs to an expert, a layer or an expert is missing, repeated or beyond the config's number, or
// experts of a layer differ.
void take_weights(ModelDescription& model, std::span<const NamedTensor> tensors);

}  // namespace evenkeel
