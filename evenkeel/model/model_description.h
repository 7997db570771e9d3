// A Mixture-of-Experts language model, as far as its memory depends on it: the facts of its config, no
// weights. It is read from a file by io/model_config.h.
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

// DeepSeek-V4's attention: keys are values too; queries and outputs are of low rank, outputs in groups;
// layers may compress the keys of several tokens into one.
struct CompressedAttention {
  std::int64_t query_rank = 0;
  std::int64_t output_rank = 0;  // of a group
  std::int64_t output_groups = 0;
  std::int64_t sparse_rate = 0;  // tokens of a key where keys are chosen from
  std::int64_t heavy_rate = 0;   // where all of them are looked at
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
  std::optional<CompressedAttention> compressed;
  // On queries, keys and values; with latent attention on what goes into it, not between.
  bool input_biases = false;
  bool output_bias = false;
  bool output_gate = false;      // queries are made with as many numbers again, which scale what comes out
  bool values_are_keys = false;  // one projection makes both
  bool sinks = false;            // one learned number a head that takes part in the softmax
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
};

// A small network that chooses the tokens that attention looks at.
struct AttentionIndexer {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

// Gated delta networks, a kind of linear attention.
struct DeltaShape {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;  // of a head
  std::int64_t value_dim = 0;
  std::int64_t kernel = 0;  // of the convolution before them
};

// A state space, as Mamba-2 has it.
struct MambaShape {
  std::int64_t heads = 0;
  std::int64_t width = 0;  // of all heads
  std::int64_t groups = 0;
  std::int64_t state = 0;
  std::int64_t kernel = 0;
  bool biases = false;
  bool conv_bias = false;
};

// The parts of a layer besides experts.
struct LayerParts {
  enum class Mixer { attention, wide_attention, delta, mamba, none };
  Mixer mixer = Mixer::attention;
  bool indexer = false;
  enum class Compression { none, sparse, heavy };
  Compression compression = Compression::none;
  bool router_table = false;  // experts are chosen by the token, so that no correction is needed
  bool network = true;        // experts or a dense one
};

struct RoutedExperts {
  std::int64_t count = 0;  // of a layer
  std::int64_t top_k = 0;
  std::int64_t intermediate = 0;
  std::int64_t latent = 0;  // the width that experts take and give; 0: the hidden size
  // Of the network that every token visits, be it one expert or several side by side; 0 where there is none.
  std::int64_t shared_width = 0;
  bool shared_gate = false;  // a number from the hidden state scales what that network makes
  bool gated = true;         // all networks of the model have gate, up and down; else only up and down
  bool biases = false;
  bool router_bias = false;
  bool router_scales = false;  // of the hidden state before the router, and of each expert after it
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
  // Of layers with full attention where its heads are wider than the others'.
  std::optional<AttentionShape> wide_attention;
  std::optional<AttentionIndexer> indexer;
  std::optional<DeltaShape> delta;
  std::optional<MambaShape> mamba;
  RoutedExperts experts;
  std::vector<bool> has_experts;   // by layer; the others are dense, or have no network
  std::vector<LayerParts> layers;  // empty: all have attention and a network
  std::int64_t layer_norms = 2;    // of one layer
  std::int64_t expert_norms = 0;   // further ones of a layer with experts
  bool norm_biases = false;
  bool layer_scalar = false;  // a number that scales what a layer makes
  bool head_bias = false;
  // Hidden states side by side, mixed before and after each block by weights of their own; 1: a plain one.
  std::int64_t streams = 1;
  std::int64_t dense_intermediate = 0;  // 0 where no layer is dense
  // As the config states it ("bfloat16"), with its bytes; empty and 0 where it does not.
  std::string dtype;
  std::int64_t dtype_bytes = 0;
  std::string quantization;  // quant_method of the checkpoint ("fp8"); empty where it has none
  // By layer, how many tokens back attention looks; 0: to the first. Empty: no layer has such a window.
  std::vector<std::int64_t> windows;
  // Layers for predicting further tokens (MTP) that come behind num_layers, and whether each has experts. The
  // parts of one are attention and a network, norms, and a projection of two hidden states into one.
  std::vector<bool> prediction_layers;

  std::int64_t num_moe_layers() const;
  LayerParts parts(std::int64_t layer) const;
};

}  // namespace evenkeel
