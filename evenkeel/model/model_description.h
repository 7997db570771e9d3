// A Mixture-of-Experts language model, as far as its memory depends on it: the facts of its config, and
// its weights by shape. It is read from files by io/model_config.h.
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

// Attention over compressed keys and values (DeepSeek's MLA): what is stored per token is kv_rank + rope_dim
// numbers.
struct LatentAttention {
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;  // of a head's query and key, without position
  std::int64_t rope_dim = 0;  // with position; one key for all heads
  std::int64_t value_dim = 0;

  std::int64_t query_dim() const { return nope_dim + rope_dim; }
};

struct AttentionShape {
  // Which normalisation queries and keys get: one scale of head_dim for all heads, or one over all heads
  // together.
  enum class QueryKeyNorm { none, per_head, whole };

  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  // Of a query and a key. With latent attention nope_dim + rope_dim.
  std::int64_t head_dim = 0;
  std::optional<LatentAttention> latent;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
};

struct RoutedExperts {
  std::int64_t count = 0;  // of a layer
  std::int64_t top_k = 0;
  std::int64_t intermediate = 0;
  std::int64_t latent = 0;  // the width that experts take and give; 0: the hidden size
  // Of the network that every token visits, be it one expert or several side by side; 0 where there is none.
  std::int64_t shared_width = 0;
  bool gated = true;  // all networks of the model have gate, up and down; else only up and down
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
  std::vector<bool> has_experts;        // by layer; the others are dense, or have no network
  std::int64_t dense_intermediate = 0;  // 0 where no layer is dense
  // As the config states it ("bfloat16"), with its bytes; empty and 0 where it does not.
  std::string dtype;
  std::int64_t dtype_bytes = 0;
  std::string quantization;  // quant_method of the checkpoint ("fp8"); empty where it has none
  // By layer, what is kept of a sequence when the model is served.
  std::vector<std::vector<CacheShape>> caches;
  // Layers for predicting further tokens (MTP) that come behind num_layers, and whether each has experts.
  std::vector<bool> prediction_layers;
  // Empty where only a config.json is there and no rule says its family's.
  std::vector<Weight> weights;
  // What a reader of an answer must know: weights that are not counted, sizes that are taken for others.
  std::vector<std::string> notes;
  std::vector<std::string> cache_notes;  // the same of caches

  std::int64_t num_moe_layers() const;
  // Numbers of a row that a routed expert takes, and gives.
  std::int64_t expert_row_width() const { return experts.latent > 0 ? experts.latent : hidden; }
  // Of one routed expert, biases included.
  std::int64_t expert_parameters() const;
  // All weights but those of layers for further tokens; those of one kind.
  std::int64_t parameters() const;
  std::int64_t parameters(WeightKind kind) const;
};

}  // namespace evenkeel
