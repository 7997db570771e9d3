// Reads a model's Hugging Face config.json: its sizes (docs/formats.md#model-config), which of its layers
// have experts (#layers-with-experts), and whether its router chooses groups of experts first
// (docs/checkpoints.md#groups). All functions take a file, or a folder that holds config.json.
//
//   read_model_layers("DeepSeek-V3/").moe_layers    // 3, 4, ..., 60
#pragma once

#include <span>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/model/model_description.h"
#include "evenkeel/model/routing_groups.h"
#include "evenkeel/model/sorted_weights.h"

namespace evenkeel {

// Takes the config of a language model, or one that contains it as `text_config`. In a folder with a
// safetensors checkpoint the weights come from its headers. For a config.json alone they come from the
// family's rule; without a rule there are none. Throws ParseError, naming the key or the tensor, for a
// missing or impossible number, and for packed weights whose shapes cannot be known. Throws InvalidArgument
// if no tensor belongs to an expert.
ModelDescription read_model_description(const ByteSource& source);
// The same with the given weights.
ModelDescription read_model_description(const ByteSource& config, std::span<const NamedTensor> tensors);

struct ModelLayers {
  int num_hidden_layers = 0;
  // Ascending, counted from 0 with the dense layers; at least one.
  std::vector<int> moe_layers = {};
  // Layers of multi-token prediction that have experts; their numbers start at num_hidden_layers.
  std::vector<int> mtp_layers = {};
  int num_mtp_layers = 0;  // with experts or not
  // The layers among moe_layers where a table chooses experts by token (hash routing), so nothing is
  // recorded.
  std::vector<int> table_layers = {};
  // moe_layers and mtp_layers, in order.
  std::vector<int> all_layers() const;
  // In each such layer, without shared experts; 0 if the config does not say it.
  int num_experts = 0;
  // Experts that a token chooses in each such layer; 0 if the config does not say it.
  int top_k = 0;

  friend bool operator==(const ModelLayers&, const ModelLayers&) = default;
};

// Takes the config of any language model, or one that contains it, as in models of text and images. It does
// not look at sizes, so it also works for unknown families. Throws ParseError, naming the keys and what would
// be right, if no key says which layers have experts, two keys disagree, or a list does not fit the number of
// layers.
ModelLayers read_model_layers(const ByteSource& source);

// The groups of experts of a model with `num_experts` experts per layer, for permuting its checkpoint. One
// group if the config has no groups, has another number of experts, or its family cannot be permuted.
RoutingGroups read_model_groups(const ByteSource& source, int num_experts);

}  // namespace evenkeel
