#include "evenkeel/model/parameters.h"

#include <algorithm>

namespace evenkeel {

namespace {

using Mixer = LayerParts::Mixer;

std::int64_t linear(std::int64_t in, std::int64_t out, bool bias) {
  return in * out + (bias ? out : 0);
}

// Gate, up and down, or up and down.
std::int64_t feed_forward(std::int64_t hidden, std::int64_t intermediate, bool gated, bool biases) {
  return (gated ? 2 : 1) * linear(hidden, intermediate, biases) + linear(intermediate, hidden, biases);
}

std::int64_t norm_of_queries_and_keys(const AttentionShape& shape) {
  switch (shape.query_key_norm) {
    case AttentionShape::QueryKeyNorm::none:
      return 0;
    case AttentionShape::QueryKeyNorm::per_head:
      return 2 * shape.head_dim;
    case AttentionShape::QueryKeyNorm::whole:
      return (shape.heads + shape.kv_heads) * shape.head_dim;
  }
  return 0;
}

std::int64_t grouped_attention(std::int64_t hidden, const AttentionShape& shape) {
  const std::int64_t queries = shape.heads * shape.head_dim;
  const std::int64_t keys = shape.kv_heads * shape.head_dim;
  return linear(hidden, (shape.output_gate ? 2 : 1) * queries, shape.input_biases) +
         (shape.values_are_keys ? 1 : 2) * linear(hidden, keys, shape.input_biases) +
         linear(queries, hidden, shape.output_bias) + norm_of_queries_and_keys(shape) +
         (shape.sinks ? shape.heads : 0);
}

// The projections into the compressed spaces, and their norms.
std::int64_t latent_inward(std::int64_t hidden, const AttentionShape& shape) {
  const LatentAttention& latent = *shape.latent;
  const std::int64_t query =
      latent.query_rank > 0 ? linear(hidden, latent.query_rank, shape.input_biases) + latent.query_rank : 0;
  return query + linear(hidden, latent.kv_rank + latent.rope_dim, shape.input_biases) + latent.kv_rank;
}

std::int64_t query_input(std::int64_t hidden, const LatentAttention& latent) {
  return latent.query_rank > 0 ? latent.query_rank : hidden;
}

std::int64_t latent_attention(std::int64_t hidden, const AttentionShape& shape) {
  const LatentAttention& latent = *shape.latent;
  return latent_inward(hidden, shape) +
         linear(query_input(hidden, latent), shape.heads * latent.query_dim(), false) +
         linear(latent.kv_rank, shape.heads * (latent.nope_dim + latent.value_dim), false) +
         linear(shape.heads * latent.value_dim, hidden, shape.output_bias);
}

std::int64_t compressed_attention(std::int64_t hidden, const AttentionShape& shape) {
  const CompressedAttention& ranks = *shape.compressed;
  const std::int64_t inner = shape.heads * shape.head_dim;
  const std::int64_t queries =
      linear(hidden, ranks.query_rank, false) + ranks.query_rank + linear(ranks.query_rank, inner, false);
  const std::int64_t keys = linear(hidden, shape.head_dim, false) + shape.head_dim;
  const std::int64_t outputs = linear(inner, ranks.output_rank, false) +
                               linear(ranks.output_groups * ranks.output_rank, hidden, false);
  return queries + keys + outputs + (shape.sinks ? shape.heads : 0);
}

std::int64_t attention(std::int64_t hidden, const AttentionShape& shape) {
  if (shape.compressed) return compressed_attention(hidden, shape);
  return shape.latent ? latent_attention(hidden, shape) : grouped_attention(hidden, shape);
}

// Keys and their gates, each `width` wide, a bias for each place among the tokens of a key, and a norm.
std::int64_t compressor(std::int64_t hidden, std::int64_t width, std::int64_t rate, std::int64_t head_dim) {
  return 2 * linear(hidden, width, false) + rate * width + head_dim;
}

// The weights that make the compressed keys of a layer, and choose among them.
std::int64_t compression(const ModelDescription& model, LayerParts::Compression kind) {
  if (kind == LayerParts::Compression::none) return 0;
  const AttentionShape& shape = model.attention;
  const CompressedAttention& ranks = *shape.compressed;
  if (kind == LayerParts::Compression::heavy)
    return compressor(model.hidden, shape.head_dim, ranks.heavy_rate, shape.head_dim);
  const AttentionIndexer& indexer = *model.indexer;
  return compressor(model.hidden, 2 * shape.head_dim, ranks.sparse_rate, shape.head_dim) +
         compressor(model.hidden, 2 * indexer.head_dim, ranks.sparse_rate, indexer.head_dim) +
         linear(ranks.query_rank, indexer.heads * indexer.head_dim, false) +
         linear(model.hidden, indexer.heads, false);
}

// The weights that mix the streams before and after the two blocks of a layer.
std::int64_t stream_mixers(const ModelDescription& model) {
  if (model.streams == 1) return 0;
  const std::int64_t mixed = (2 + model.streams) * model.streams;
  return 2 * (mixed * model.streams * model.hidden + mixed + 3);
}

// Queries, one key for all heads with scale and shift of its norm, and the weight of each head.
std::int64_t indexer(const ModelDescription& model) {
  const AttentionIndexer& shape = *model.indexer;
  const LatentAttention& latent = *model.attention.latent;
  return linear(query_input(model.hidden, latent), shape.heads * shape.head_dim, false) +
         linear(model.hidden, shape.head_dim, false) + 2 * shape.head_dim +
         linear(model.hidden, shape.heads, false);
}

// Queries, keys, values and the gate of the output; two numbers a value head; the convolution; A and the bias
// of the time step; the norm of a head.
std::int64_t delta(std::int64_t hidden, const DeltaShape& shape) {
  const std::int64_t keys = shape.key_heads * shape.key_dim;
  const std::int64_t values = shape.value_heads * shape.value_dim;
  return linear(hidden, 2 * keys + 2 * values + 2 * shape.value_heads, false) +
         (2 * keys + values) * shape.kernel + 2 * shape.value_heads + shape.value_dim +
         linear(values, hidden, false);
}

// The projections, the convolution, the norm; A, D and the bias of the time step.
std::int64_t mamba(std::int64_t hidden, const MambaShape& shape) {
  const std::int64_t convolved = shape.width + 2 * shape.groups * shape.state;
  return linear(hidden, shape.width + convolved + shape.heads, shape.biases) +
         convolved * (shape.kernel + (shape.conv_bias ? 1 : 0)) + 3 * shape.heads + shape.width +
         linear(shape.width, hidden, shape.biases);
}

std::int64_t mixer(const ModelDescription& model, const LayerParts& parts) {
  switch (parts.mixer) {
    case Mixer::attention:
      return attention(model.hidden, model.attention) + (parts.indexer ? indexer(model) : 0) +
             compression(model, parts.compression);
    case Mixer::wide_attention:
      return attention(model.hidden, *model.wide_attention);
    case Mixer::delta:
      return delta(model.hidden, *model.delta);
    case Mixer::mamba:
      return mamba(model.hidden, *model.mamba);
    case Mixer::none:
      return 0;
  }
  return 0;
}

std::int64_t norm(const ModelDescription& model) {
  return (model.norm_biases ? 2 : 1) * model.hidden;
}

// With the ways into the width that experts work in, and back.
std::int64_t router(const ModelDescription& model, const LayerParts& parts) {
  const RoutedExperts& experts = model.experts;
  return linear(model.hidden, experts.count, experts.router_bias) +
         (experts.router_correction && !parts.router_table ? experts.count : 0) +
         (experts.router_scales ? model.hidden + experts.count : 0) +
         2 * linear(model.hidden, experts.latent, false);
}

std::int64_t shared_experts(const ModelDescription& model) {
  const RoutedExperts& experts = model.experts;
  if (experts.shared_width == 0) return 0;
  return feed_forward(model.hidden, experts.shared_width, experts.gated, false) +
         (experts.shared_gate ? model.hidden : 0);
}

}  // namespace

std::int64_t ModelDescription::num_moe_layers() const {
  return std::count(has_experts.begin(), has_experts.begin() + num_layers, true);
}

LayerParts ModelDescription::parts(std::int64_t layer) const {
  return layer < std::ssize(layers) ? layers[static_cast<std::size_t>(layer)] : LayerParts{};
}

LayerParameters& LayerParameters::operator+=(const LayerParameters& other) {
  norms += other.norms;
  attention += other.attention;
  router += other.router;
  experts += other.experts;
  shared_experts += other.shared_experts;
  dense += other.dense;
  return *this;
}

std::int64_t expert_row_width(const ModelDescription& model) {
  return model.experts.latent > 0 ? model.experts.latent : model.hidden;
}

std::int64_t expert_parameters(const ModelDescription& model) {
  return feed_forward(expert_row_width(model), model.experts.intermediate, model.experts.gated,
                      model.experts.biases);
}

std::int64_t shared_attention_parameters(const ModelDescription& model, LayerId layer) {
  return model.parts(layer.value()).mixer == Mixer::attention && model.attention.latent
             ? latent_inward(model.hidden, model.attention)
             : 0;
}

std::int64_t key_value_parameters(const ModelDescription& model, LayerId layer) {
  const AttentionShape& shape = model.attention;
  if (model.parts(layer.value()).mixer != Mixer::attention || shape.latent || shape.compressed) return 0;
  return (shape.values_are_keys ? 1 : 2) *
         linear(model.hidden, shape.kv_heads * shape.head_dim, shape.input_biases);
}

std::int64_t final_norm_parameters(const ModelDescription& model) {
  const std::int64_t streams = model.streams;
  return norm(model) + (streams > 1 ? streams * streams * model.hidden + streams + 1 : 0);
}

std::int64_t head_parameters(const ModelDescription& model) {
  return linear(model.hidden, model.vocabulary, model.head_bias);
}

std::int64_t prediction_norm_parameters(const ModelDescription& model) {
  return 3 * norm(model);
}

std::int64_t prediction_projection_parameters(const ModelDescription& model) {
  return linear(2 * model.hidden, model.hidden, false);
}

LayerParameters layer_parameters(const ModelDescription& model, LayerId layer) {
  const LayerParts parts = model.parts(layer.value());
  const bool with_experts = model.has_experts[layer.offset()];
  LayerParameters sum;
  sum.norms = (model.layer_norms + (with_experts ? model.expert_norms : 0)) * norm(model) +
              (model.layer_scalar ? 1 : 0) + stream_mixers(model);
  sum.attention = mixer(model, parts);
  if (with_experts) {
    sum.router = router(model, parts);
    sum.experts = model.experts.count * expert_parameters(model);
    sum.shared_experts = shared_experts(model);
  } else if (parts.network) {
    sum.dense = feed_forward(model.hidden, model.dense_intermediate, model.experts.gated, false);
  }
  return sum;
}

ModelParameters model_parameters(const ModelDescription& model) {
  ModelParameters sum;
  sum.embedding = model.vocabulary * model.hidden;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    sum.layers += layer_parameters(model, LayerId(static_cast<int>(layer)));
  sum.final_norm = final_norm_parameters(model);
  sum.head = model.tied_embeddings ? 0 : head_parameters(model);
  return sum;
}

}  // namespace evenkeel
