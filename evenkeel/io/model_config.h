// What a model's Hugging Face config.json says: its sizes (docs/formats.md#model-config), which of its layers
// have experts (#layers-with-experts), and whether its router chooses groups of them first
// (docs/checkpoints.md#groups). All take a file, or a folder that holds config.json.
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

// Takes the config of a language model, or one that has it as its `text_config`. Of a folder with a
// safetensors checkpoint the weights are those of its headers; of a config.json alone those that the family's
// rule says, or none where there is no rule. Throws ParseError, naming the key or the tensor: a missing or
// impossible number, weights packed in a way that hides their shapes. InvalidArgument: tensors without
// experts.
ModelDescription read_model_description(const ByteSource& source);
// With these weights.
ModelDescription read_model_description(const ByteSource& config, std::span<const NamedTensor> tensors);

struct ModelLayers {
  int num_hidden_layers = 0;
  // Ascending, counted from 0 with the dense layers; at least one.
  std::vector<int> moe_layers = {};
  // Layers of multi-token prediction that have experts: numbered on from num_hidden_layers.
  std::vector<int> mtp_layers = {};
  int num_mtp_layers = 0;  // with experts or not
  // Of moe_layers those whose experts a table chooses by token (hash routing): there is no router to record.
  std::vector<int> table_layers = {};
  // moe_layers and mtp_layers, in order.
  std::vector<int> all_layers() const;
  // In each such layer, without shared experts; 0 where the config does not say it.
  int num_experts = 0;
  // Of a token in each such layer; 0 where the config does not say it.
  int top_k = 0;

  friend bool operator==(const ModelLayers&, const ModelLayers&) = default;
};

// Takes the config of any language model, or one that has it inside, as models of text and images do. Sizes
// are not looked at, so that a family is known by its keys alone. Throws ParseError, naming the keys and what
// would be right: none says which layers have experts, two of them disagree, or a list does not fit the
// number of layers.
ModelLayers read_model_layers(const ByteSource& source);

// Of a model of so many experts a layer whose checkpoint can be permuted. One group where the config says
// nothing of groups, has other experts or is of another model.
RoutingGroups read_model_groups(const ByteSource& source, int num_experts);

}  // namespace evenkeel
