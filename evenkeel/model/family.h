// The families of Mixture-of-Experts models: how a checkpoint names the tensors of experts, and which keys of
// config.json give the sizes of the weights. A family is one row of families.cpp; docs/families.md tells how
// to add one.
//
//   known_family("glm4_moe")->tensors->router     // "gate.weight", "gate.e_score_correction_bias"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/model/model_description.h"

namespace evenkeel {

// Tensors of a layer with experts, by their names below "layers.N.MODULE.". A name matches whole words from
// the start: "shared_experts" also matches "shared_experts.up_proj.weight".
struct ExpertTensors {
  // The modules of a layer that may hold experts, such as "mlp"; "" if the layer itself holds them.
  std::vector<std::string_view> modules;
  // Tensors with a row for each expert. The first holds the router's weights.
  std::vector<std::string_view> router;
  // Tensors next to the experts' tensors that belong to no expert; they are not reordered.
  std::vector<std::string_view> kept = {};
  // Tensors that hold all experts, but whose names are not below "experts".
  std::vector<std::string_view> stacked = {};
  // Router tensors may have further rows after the experts' rows; these are not reordered.
  bool has_extra_rows = false;
  // Tensors that contain expert ids, such as a table from token ids to expert ids.
  std::vector<std::string_view> id_tables = {};
};

// The key of a number in config.json, and the number that null means.
struct SizeKey {
  std::string_view key;
  std::int64_t null_value = -1;  // the value if the key is null; -1: null is not allowed
};

struct FlagKey {
  std::string_view key;
  bool default_value = false;
};

// Which keys describe a family's attention.
struct AttentionRule {
  enum class Kind { grouped, latent };
  Kind kind = Kind::grouped;
  FlagKey biases = {"attention_bias"};  // an empty key: no biases
  bool output_bias = true;              // the output projection has a bias if the others have one
  AttentionShape::QueryKeyNorm norm = AttentionShape::QueryKeyNorm::none;
  std::string_view norm_switch = {};  // the key that switches the norm on; empty: always on
  bool sinks = false;
  bool output_gate = false;      // the query projection has twice the rows; the second half gates the output
  bool indexer = false;          // index_n_heads heads of index_head_dim choose the tokens to attend to
  bool wide_layers = false;      // full-attention layers have their own width (global_head_dim, ...)
  bool stated_head_dim = false;  // head_dim is not hidden / heads, so a key must give it
  int full_every = 0;            // if no key gives it: every n-th layer has no window; 0: all layers have one
};

// Which keys of config.json give the sizes of weights. Keys that all families share are not repeated:
// num_hidden_layers, hidden_size, vocab_size, num_attention_heads, num_key_value_heads, head_dim.
struct WeightRule {
  std::string_view experts = "num_experts";  // the key in the family's own configs; other keys are read too
  std::string_view top_k = "num_experts_per_tok";
  std::string_view expert_width = "moe_intermediate_size";
  std::string_view dense_width = "intermediate_size";
  // Shared experts, which every token visits: their total width, or their number and the width of each.
  std::optional<SizeKey> shared_width = {};
  std::optional<SizeKey> shared_count = {};
  bool shared_gate = false;            // a scalar from the hidden state scales the shared experts' output
  bool gated = true;                   // a network has gate, up and down, not only up and down
  std::string_view latent_width = {};  // the width of experts' inputs and outputs, if not the hidden size
  bool expert_biases = false;
  bool router_bias = false;
  bool router_correction = false;
  bool router_scales = false;  // has a scale for each number of the router's input and each expert's result
  AttentionRule attention = {};
  bool delta = false;    // layers whose type is not attention are gated delta networks
  int norms = 2;         // in each layer
  int expert_norms = 0;  // additional norms in a layer with experts
  bool norm_biases = false;
  bool layer_scalar = false;          // one number that scales a layer's output
  std::string_view head_bias = {};    // the key that tells whether the head has a bias
  bool tied = false;                  // default of tie_word_embeddings
  bool has_unlisted_weights = false;  // the config does not determine all weights: only sizes are read
};

struct Family {
  // Which layers have experts if no key says it.
  enum class Layers { stated, all, after_stated_dense };
  // Whether the router first chooses groups of experts (n_group, topk_group).
  enum class Groups { if_stated, always_stated, unless_greedy };

  // Values of model_type in config.json. The first names the family; the others are renamed models, or the
  // language part of a model with images.
  std::vector<std::string_view> model_types;
  // Class names without their endings: "Mixtral" for "MixtralForCausalLM".
  std::vector<std::string_view> architectures = {};
  Layers layers = Layers::stated;
  Groups groups = Groups::if_stated;
  // Layers of multi-token prediction never have experts.
  bool dense_prediction = false;
  std::optional<ExpertTensors> tensors = {};
  std::string_view not_permuted = {};  // why `tensors` is empty, if known
  std::optional<WeightRule> weights = {};

  std::string_view name() const { return model_types.front(); }
};

const std::vector<Family>& known_families();
// Finds a family by one of its model types; null if there is none.
const Family* known_family(std::string_view model_type);
// Finds a family by the name of a class: "MixtralForCausalLM", or "MixtralModel" for the model without its
// head.
const Family* family_of_architecture(std::string_view architecture);

}  // namespace evenkeel
