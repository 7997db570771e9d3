// A trained MoE layer with recorded inputs and outputs: data/tiny-moe/layer.safetensors, or any array file
// with the same names (docs/formats.md#trained-layer).
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/io/byte_source.h"

namespace evenkeel {

// The experts are SwiGLU without biases. All numbers are converted to float.
struct TrainedLayer {
  int num_experts = 0;
  int hidden = 0;
  int intermediate = 0;
  int top_k = 0;
  std::int64_t num_tokens = 0;
  std::vector<float> gate_up;          // [experts, 2 * intermediate, hidden], gate rows first
  std::vector<float> down;             // [experts, hidden, intermediate]
  std::vector<float> router;           // [experts, hidden]
  std::vector<float> input;            // [tokens, hidden]
  std::vector<float> output;           // [tokens, hidden]
  std::vector<std::int32_t> topk_ids;  // [tokens, k]
  std::vector<float> topk_weights;     // [tokens, k]
};

// Throws ParseError if an array is missing, shapes do not fit each other, an id is out of range, or a number
// is not finite (F64 numbers: after conversion to F32).
TrainedLayer read_trained_layer(const ByteSource& source);

}  // namespace evenkeel
