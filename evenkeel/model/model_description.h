// What a Mixture-of-Experts language model is, as far as its memory depends on it: the facts of its config,
// no weights. Read from a file by io/model_config.h.
//
//   Mixtral 8x7B   32 layers of 4096, all with 8 experts of 14336, top-2; 32 heads of 128, 8 of them for keys
//   DeepSeek-V3    61 layers of 7168, the first 3 dense; 256 experts of 2048, top-8, and one shared;
//                  latent attention
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  // On q, k, v and o; with latent attention on what goes into and comes out of it, not between.
  bool biases = false;
  bool sinks = false;  // one learned number a head that takes part in the softmax
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
};

struct RoutedExperts {
  std::int64_t count = 0;  // of a layer
  std::int64_t top_k = 0;
  std::int64_t intermediate = 0;
  std::int64_t shared_count = 0;  // experts that every token visits, each as large as a routed one
  bool biases = false;
  bool router_bias = false;
  // A number for each expert that is added to its score for choosing only, and is no gradient's.
  bool router_correction = false;
};

struct ModelDescription {
  std::string family;  // model_type as the config has it
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  bool tied_embeddings = false;  // the head is the embedding
  AttentionShape attention;
  RoutedExperts experts;
  std::vector<bool> has_experts;        // by layer; the others are dense
  std::int64_t dense_intermediate = 0;  // 0 where no layer is dense
  // As the config states it ("bfloat16"), with its bytes; empty and 0 where it does not.
  std::string dtype;
  std::int64_t dtype_bytes = 0;
  // Layers for predicting further tokens that a checkpoint may hold beside these; not counted anywhere.
  std::int64_t extra_prediction_layers = 0;

  std::int64_t num_moe_layers() const;
};

}  // namespace evenkeel
