// The families of Mixture-of-Experts models: how a checkpoint names the tensors of experts, and which keys of
// a config.json say the sizes that weights are counted from. A family is one row of families.cpp; how to add
// one is in docs/families.md.
//
//   known_family("glm4_moe")->tensors->router     // "gate.weight", "gate.e_score_correction_bias"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/model/model_description.h"

namespace evenkeel {

// Tensors of a layer with experts, by their names below "layers.N.MODULE.". Each names whole words:
// "shared_experts" is also "shared_experts.up_proj.weight".
struct ExpertTensors {
  // The modules of a layer that may hold experts: "mlp". "" where experts are the layer's own.
  std::vector<std::string_view> modules;
  // With a row for each expert. The first is of the router's weights.
  std::vector<std::string_view> router;
  // Of no expert, though they stand beside experts.
  std::vector<std::string_view> kept = {};
  // All experts in one tensor that does not stand below "experts".
  std::vector<std::string_view> stacked = {};
  // Router tensors may have rows for what is no routed expert behind those of the experts; they stay there.
  bool rows_behind = false;
  // Tensors whose numbers are ids of experts: a table that routes by token.
  std::vector<std::string_view> id_tables = {};
};

// The key of a number that a config.json may give; what it is where the key is missing.
struct SizeKey {
  std::string_view key;
  std::int64_t absent = -1;  // what null says; -1: it must be a number
};

struct FlagKey {
  std::string_view key;
  bool absent = false;
};

// Which keys say what attention is made of.
struct AttentionRule {
  enum class Kind { grouped, latent };
  Kind kind = Kind::grouped;
  FlagKey biases = {"attention_bias"};  // without a key: none
  bool output_bias = true;              // that of the output goes with the others
  AttentionShape::QueryKeyNorm norm = AttentionShape::QueryKeyNorm::none;
  std::string_view norm_switch = {};  // a key that must be true for the norm; without one it is there
  bool sinks = false;
  bool output_gate = false;      // of queries: as many numbers again that scale what comes out
  bool indexer = false;          // index_n_heads of index_head_dim choose what is attended to
  bool wide_layers = false;      // full attention has a width of its own: global_head_dim and its like
  bool stated_head_dim = false;  // the class has a head_dim that is not hidden / heads: a key must say it
  int full_every = 0;  // where no key says it: every so many-th layer has no window; 0: all layers have it
};

// Where a config.json says what weights are counted from. Keys that all families share are not repeated:
// num_hidden_layers, hidden_size, vocab_size, num_attention_heads, num_key_value_heads, head_dim.
struct WeightRule {
  std::string_view experts = "num_experts";  // as the family's own configs have it; others are read too
  std::string_view top_k = "num_experts_per_tok";
  std::string_view expert_width = "moe_intermediate_size";
  std::string_view dense_width = "intermediate_size";
  // Of the experts that every token visits: a width, or a number of them and the width of each.
  std::optional<SizeKey> shared_width = {};
  std::optional<SizeKey> shared_count = {};
  bool shared_gate = false;            // a number from the hidden state scales what they make
  bool gated = true;                   // a network has gate, up and down, not only up and down
  std::string_view latent_width = {};  // the width that experts work in, if not the hidden one
  bool expert_biases = false;
  bool router_bias = false;
  bool router_correction = false;
  bool router_scales = false;  // of the hidden state before, and of each expert after
  AttentionRule attention = {};
  bool delta = false;    // layers whose type is not attention are gated delta networks
  int norms = 2;         // of a layer
  int expert_norms = 0;  // further ones of a layer with experts
  bool norm_biases = false;
  bool layer_scalar = false;        // one number that scales what a layer makes
  std::string_view head_bias = {};  // the key that says whether the head has one
  bool tied = false;                // the head is the embedding where no key says it
  bool sizes_alone = false;         // there are weights that only tensors say
};

struct Family {
  // Which layers have experts where no key says it.
  enum class Layers { stated, all, after_stated_dense };
  // How groups of experts are chosen before experts (n_group, topk_group).
  enum class Groups { if_stated, always_stated, unless_greedy };

  // As a config.json has it; the first names the family. The others are renamed, or a part of a model with
  // images.
  std::vector<std::string_view> model_types;
  // Of classes, without their endings: "Mixtral" of "MixtralForCausalLM".
  std::vector<std::string_view> architectures = {};
  Layers layers = Layers::stated;
  Groups groups = Groups::if_stated;
  // Layers of multi-token prediction have no experts, whatever the others have.
  bool dense_prediction = false;
  std::optional<ExpertTensors> tensors = {};
  std::string_view not_permuted = {};  // why there are none, where it is known
  std::optional<WeightRule> weights = {};

  std::string_view name() const { return model_types.front(); }
};

const std::vector<Family>& known_families();
// By one of its model types; null where there is none.
const Family* known_family(std::string_view model_type);
// By the name of a class: "MixtralForCausalLM", or "MixtralModel" of the model without its head.
const Family* family_of_architecture(std::string_view architecture);

}  // namespace evenkeel
