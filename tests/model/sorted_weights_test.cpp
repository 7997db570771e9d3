// Tensors recognised by name and shape, and the errors that name refused tensors.
#include "evenkeel/model/sorted_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<NamedTensor>;

// Two layers with four experts of 3 x 8, one tensor per expert, with biases.
Tensors whole_model() {
  Tensors tensors = {{.name = "model.embed_tokens.weight", .shape = {32, 8}},
                     {.name = "lm_head.weight", .shape = {32, 8}}};
  for (const char* layer : {"0", "1"}) {
    const std::string here = std::string("model.layers.") + layer;
    tensors.push_back({.name = here + ".self_attn.k_proj.weight", .shape = {4, 8}});
    tensors.push_back({.name = here + ".mlp.gate.e_score_correction_bias", .shape = {4}});
    for (const char* expert : {"0", "1", "2", "3"}) {
      const std::string one = here + ".mlp.experts." + expert;
      tensors.push_back({.name = one + ".w1.weight", .shape = {3, 8}, .number_bytes = 2});
      tensors.push_back({.name = one + ".w1.bias", .shape = {3}, .number_bytes = 2});
      tensors.push_back({.name = one + ".w2.weight", .shape = {8, 3}, .number_bytes = 2});
    }
  }
  return tensors;
}

ModelDescription taken(const Tensors& tensors, std::int64_t experts = 4) {
  ModelDescription model;
  model.num_layers = 2;
  model.hidden = 8;
  model.attention.kv_heads = 2;
  model.experts.count = experts;
  take_weights(model, tensors);
  return model;
}

TEST(SortedWeights, TensorsOfOneExpertBecomeOneOfAllApartFromTheirBiases) {
  for (const std::int64_t stated : {0, 4}) {
    const ModelDescription model = taken(whole_model(), stated);
    EXPECT_EQ(model.experts.count, 4);
    EXPECT_EQ(model.experts.intermediate, 3);
    EXPECT_TRUE(model.experts.biases);
    EXPECT_FALSE(model.experts.gated);
    EXPECT_EQ(model.parameters(WeightKind::experts), 2 * 4 * (24 + 3 + 24));
    EXPECT_EQ(model.parameters(), 2 * 256 + 2 * (32 + 4) + model.parameters(WeightKind::experts));
    for (const Weight& weight : model.weights) {
      EXPECT_EQ(weight.trained, weight.kind != WeightKind::router) << weight.name;
      EXPECT_EQ(weight.max_parts, weight.kind == WeightKind::attention ? 2 : 0) << weight.name;
    }
  }
}

TEST(SortedWeights, AHeadThatIsTheEmbeddingIsNotCountedTwice) {
  ModelDescription model;
  model.num_layers = 2;
  model.hidden = 8;
  model.tied_embeddings = true;
  take_weights(model, whole_model());
  EXPECT_EQ(model.parameters(WeightKind::head), 0);
}

TEST(SortedWeights, WhatIsMissingTwiceUnlikeOrBeyondTheConfigIsNamed) {
  const auto without = [](const std::string& part) {
    Tensors tensors = whole_model();
    std::erase_if(tensors,
                  [&](const NamedTensor& each) { return each.name.find(part) != std::string::npos; });
    return tensors;
  };
  const auto with = [](NamedTensor more) {
    Tensors tensors = whole_model();
    tensors.push_back(std::move(more));
    return tensors;
  };
  const std::vector<std::pair<Tensors, const char*>> wrong = {
      {without("experts"), "has no tensor of experts"},
      {without("experts.1."), "for 3 experts, the last numbered 3; allowed: experts 0..3"},
      {without("experts.3."), "for 3 experts, the last numbered 2; allowed: experts 0..3"},
      {without("layers.1."), "has no weight of layer 1, but its config says 2 layers"},
      {without("w2"), "has experts in layer 0 with unknown tensor names; allowed: down_proj, w2"},
      {with({.name = "model.layers.0.mlp.experts.00.w1.weight", .shape = {3, 8}, .number_bytes = 2}),
       "experts.00.w1.weight twice"},
      {with({.name = "model.layers.0.mlp.experts.4.w1.weight", .shape = {5, 8}, .number_bytes = 2}),
       "of shape [5, 8], whose shape or type differs from that of"},
      {with({.name = "model.layers.2.mlp.gate.weight", .shape = {4, 8}}),
       "has model.layers.2.mlp.gate.weight, but its config says 2 layers"},
      {with({.name = "mtp.layers.99.mlp.gate.weight", .shape = {4, 8}}), "has mtp.layers.99"},
  };
  for (const auto& [tensors, said] : wrong) try {
      taken(tensors);
      FAIL() << "was taken: " << said;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
}

TEST(SortedWeights, TensorsWithoutNumbersAndTowersAreNoLayers) {
  Tensors tensors = whole_model();
  tensors.push_back({.name = "model.layers.0.mlp.experts.down_proj", .shape = {0, 8, 8}});
  tensors.push_back({.name = "model.visual.blocks.7.mlp.fc1.weight", .shape = {5, 5}});
  const ModelDescription model = taken(tensors);
  EXPECT_EQ(model.parameters(WeightKind::other), 25);
  EXPECT_EQ(model.experts.count, 4);
}

}  // namespace
}  // namespace evenkeel
