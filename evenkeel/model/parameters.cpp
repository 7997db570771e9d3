#include "evenkeel/model/parameters.h"

#include <algorithm>

namespace evenkeel {

namespace {

std::int64_t linear(std::int64_t in, std::int64_t out, bool bias) {
  return in * out + (bias ? out : 0);
}

// Gate, up and down.
std::int64_t feed_forward(std::int64_t hidden, std::int64_t intermediate, bool biases) {
  return 2 * linear(hidden, intermediate, biases) + linear(intermediate, hidden, biases);
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
  return linear(hidden, shape.heads * shape.head_dim, shape.biases) +
         2 * linear(hidden, shape.kv_heads * shape.head_dim, shape.biases) +
         linear(shape.heads * shape.head_dim, hidden, shape.biases) + norm_of_queries_and_keys(shape) +
         (shape.sinks ? shape.heads : 0);
}

// The projections into the compressed spaces, and their norms.
std::int64_t latent_inward(std::int64_t hidden, const AttentionShape& shape) {
  const LatentAttention& latent = *shape.latent;
  const std::int64_t query =
      latent.query_rank > 0 ? linear(hidden, latent.query_rank, shape.biases) + latent.query_rank : 0;
  return query + linear(hidden, latent.kv_rank + latent.rope_dim, shape.biases) + latent.kv_rank;
}

std::int64_t latent_attention(std::int64_t hidden, const AttentionShape& shape) {
  const LatentAttention& latent = *shape.latent;
  const std::int64_t query_input = latent.query_rank > 0 ? latent.query_rank : hidden;
  return latent_inward(hidden, shape) + linear(query_input, shape.heads * latent.query_dim(), false) +
         linear(latent.kv_rank, shape.heads * (latent.nope_dim + latent.value_dim), false) +
         linear(shape.heads * latent.value_dim, hidden, shape.biases);
}

LayerParameters times(LayerParameters layer, std::int64_t count) {
  for (std::int64_t* number :
       {&layer.norms, &layer.attention, &layer.router, &layer.experts, &layer.shared_experts, &layer.dense})
    *number *= count;
  return layer;
}

LayerParameters parameters_of(const ModelDescription& model, bool with_experts) {
  LayerParameters sum;
  sum.norms = 2 * model.hidden;
  sum.attention = model.attention.latent ? latent_attention(model.hidden, model.attention)
                                         : grouped_attention(model.hidden, model.attention);
  const RoutedExperts& experts = model.experts;
  if (!with_experts) {
    sum.dense = feed_forward(model.hidden, model.dense_intermediate, false);
    return sum;
  }
  sum.router = linear(model.hidden, experts.count, experts.router_bias) +
               (experts.router_correction ? experts.count : 0);
  sum.experts = experts.count * expert_parameters(model);
  if (experts.shared_count > 0)
    sum.shared_experts = feed_forward(model.hidden, experts.shared_count * experts.intermediate, false);
  return sum;
}

}  // namespace

std::int64_t ModelDescription::num_moe_layers() const {
  return std::ranges::count(has_experts, true);
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

std::int64_t expert_parameters(const ModelDescription& model) {
  return feed_forward(model.hidden, model.experts.intermediate, model.experts.biases);
}

std::int64_t shared_attention_parameters(const ModelDescription& model) {
  return model.attention.latent ? latent_inward(model.hidden, model.attention) : 0;
}

LayerParameters layer_parameters(const ModelDescription& model, LayerId layer) {
  return parameters_of(model, model.has_experts[layer.offset()]);
}

ModelParameters model_parameters(const ModelDescription& model) {
  ModelParameters sum;
  sum.embedding = model.vocabulary * model.hidden;
  sum.layers = times(parameters_of(model, true), model.num_moe_layers());
  sum.layers += times(parameters_of(model, false), model.num_layers - model.num_moe_layers());
  sum.final_norm = model.hidden;
  sum.head = model.tied_embeddings ? 0 : sum.embedding;
  return sum;
}

}  // namespace evenkeel
