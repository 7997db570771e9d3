// What determines the memory of a Mixture-of-Experts language model: the sizes in its config, and its weights
// by shape. io/model_config.h reads it from files.
//
//   Mixtral 8x7B   32 layers of 4096, all with 8 experts of 14336, top-2; 32 heads of 128, 8 of them for keys
//   DeepSeek-V3    61 layers of 7168, the first 3 dense; 256 experts of 2048, top-8, and one shared;
//                  latent attention
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/model/cache_shape.h"
#include "evenkeel/model/weights.h"

namespace evenkeel {

// Attention over compressed keys and values (DeepSeek's MLA). Each token stores kv_rank + rope_dim numbers.
struct LatentAttention {
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;  // numbers without position in a head's query or key
  std::int64_t rope_dim = 0;  // numbers with position in them; all heads share this part of the key
  std::int64_t value_dim = 0;

  std::int64_t query_dim() const { return nope_dim + rope_dim; }
};

struct AttentionShape {
  // How queries and keys are normalised: per_head has one scale of head_dim numbers for all heads, whole has
  // one scale over all heads together.
  enum class QueryKeyNorm { none, per_head, whole };

  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  // Numbers in one head's query or key. With latent attention: nope_dim + rope_dim.
  std::int64_t head_dim = 0;
  std::optional<LatentAttention> latent;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
};

struct RoutedExperts {
  std::int64_t count = 0;  // in each layer
  std::int64_t top_k = 0;
  std::int64_t intermediate = 0;
  std::int64_t latent = 0;  // width of experts' inputs and outputs; 0: the hidden size
  // Total intermediate width of the shared experts; 0 if there are none.
  std::int64_t shared_width = 0;
  bool gated = true;  // true: all networks have gate, up and down; false: only up and down
  bool biases = false;
};

struct ModelDescription {
  std::string family;  // model_type as the config has it
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  bool tied_embeddings = false;  // the head is the embedding
  AttentionShape attention;
  RoutedExperts experts;
  std::vector<bool> has_experts;        // by layer; a layer without experts is dense or has no network
  std::int64_t dense_intermediate = 0;  // 0 if no layer is dense
  // The type in the config ("bfloat16") and its bytes; empty and 0 if the config gives none.
  std::string dtype;
  std::int64_t dtype_bytes = 0;
  std::string quantization;  // quant_method of the checkpoint ("fp8"); empty if it has none
  // By layer: what is cached for a sequence when the model is served.
  std::vector<std::vector<CacheShape>> caches;
  // Whether each layer of multi-token prediction (MTP) has experts. These layers follow the num_layers
  // layers.
  std::vector<bool> prediction_layers;
  // Empty if there is only a config.json and its family has no rule.
  std::vector<Weight> weights;
  // What to tell the user: which weights and layers in the config are not counted.
  std::vector<std::string> notes;
  std::vector<std::string> cache_notes;  // the same for caches

  std::int64_t num_moe_layers() const;
  // Length of a routed expert's input row, and of its output row.
  std::int64_t expert_row_width() const { return experts.latent > 0 ? experts.latent : hidden; }
  // Parameters of one routed expert, biases included.
  std::int64_t expert_parameters() const;
  // Parameters of all weights, or of one kind, without the layers of multi-token prediction.
  std::int64_t parameters() const;
  std::int64_t parameters(WeightKind kind) const;
};

}  // namespace evenkeel
