// How many weights a model has, by what they are for. Norms and biases included, so the sums are those of the
// checkpoint to the last weight (docs/memory.md#parameters says against what that was checked).
#pragma once

#include <cstdint>

#include "evenkeel/base/index.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel {

// Of one layer, or of several added up.
struct LayerParameters {
  std::int64_t norms = 0;      // before attention and before the network, and what mixes streams
  std::int64_t attention = 0;  // or what stands in its place
  std::int64_t router = 0;
  std::int64_t experts = 0;  // the routed ones, all of them
  std::int64_t shared_experts = 0;
  std::int64_t dense = 0;  // the feed-forward network of a layer without experts

  std::int64_t total() const { return norms + attention + router + experts + shared_experts + dense; }
  LayerParameters& operator+=(const LayerParameters& other);
};

LayerParameters layer_parameters(const ModelDescription& model, LayerId layer);
// Numbers of a row that a routed expert takes, and gives.
std::int64_t expert_row_width(const ModelDescription& model);
// One routed expert.
std::int64_t expert_parameters(const ModelDescription& model);
// Of the attention of a layer, what every rank that splits its heads must have whole: the low-rank parts that
// all heads share.
std::int64_t shared_attention_parameters(const ModelDescription& model, LayerId layer);
// Of the attention of a layer, what makes keys and values of every key head; 0 where they are compressed.
std::int64_t key_value_parameters(const ModelDescription& model, LayerId layer);
// With what makes one of several streams.
std::int64_t final_norm_parameters(const ModelDescription& model);
// As if it were not the embedding.
std::int64_t head_parameters(const ModelDescription& model);

// A layer that predicts a further token has these besides: norms of both states that it takes and of the one
// that it gives, and a projection of both into one.
std::int64_t prediction_norm_parameters(const ModelDescription& model);
std::int64_t prediction_projection_parameters(const ModelDescription& model);

// Without layers that predict further tokens.
struct ModelParameters {
  std::int64_t embedding = 0;
  LayerParameters layers;  // all layers
  std::int64_t final_norm = 0;
  std::int64_t head = 0;  // 0 where it is the embedding

  std::int64_t total() const { return embedding + layers.total() + final_norm + head; }
};

ModelParameters model_parameters(const ModelDescription& model);

}  // namespace evenkeel
