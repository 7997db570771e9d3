// Which layers have experts according to a config.json, and which configs are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ModelLayers layers_by(const Json& json) {
  return read_model_layers(source_of(json.dump()));
}

// The config of a six-layer model with additional keys.
Json six_layers(const Json& keys) {
  Json json = {{"num_hidden_layers", 6}, {"num_experts", 8}};
  json.update(keys);
  return json;
}

std::vector<int> moe_layers(const Json& keys) {
  return layers_by(six_layers(keys)).moe_layers;
}

template <class Matcher>
void expect_no_layers(const Json& json, const Matcher& message) {
  try {
    const ModelLayers layers = layers_by(json);
    ADD_FAILURE() << "was read: " << json << " as " << testing::PrintToString(layers.moe_layers);
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), message) << json;
  }
}

TEST(ModelLayers, EachFamilysKeysSayWhichLayersHaveExperts) {
  const auto expect = [](const Json& keys, const std::vector<int>& layers) {
    EXPECT_EQ(moe_layers(keys), layers) << keys;
  };
  expect({{"first_k_dense_replace", 2}}, {2, 3, 4, 5});
  expect({{"first_k_dense_replace", 1}, {"moe_layer_freq", 2}}, {2, 4});
  expect({{"moe_layer_freq", 3}}, {0, 3});
  expect({{"moe_layer_freq", {0, 1, 1, 0, 1, 1}}}, {1, 2, 4, 5});
  expect({{"moe_layer_freq", {0, 0, 1, 1, 1, 1}}, {"first_k_dense_replace", 2}}, {2, 3, 4, 5});
  expect({{"decoder_sparse_step", 2}}, {1, 3, 5});
  expect({{"decoder_sparse_step", 1}, {"mlp_only_layers", {0, 4}}}, {1, 2, 3, 5});
  expect({{"mlp_only_layers", {5}}}, {0, 1, 2, 3, 4});
  expect({{"interleave_moe_layer_step", 2}}, {1, 3, 5});
  expect({{"moe_layers", {1, 3, 5}}, {"interleave_moe_layer_step", 2}}, {1, 3, 5});
  expect({{"moe_layers", {0, 5}}}, {0, 5});
  expect({{"moe_layers_enum", "3,4"}}, {3, 4});
  expect({{"moe_layers_enum", "3, 4"}}, {3, 4});
  expect({{"expert_layer_period", 2}, {"expert_layer_offset", 1}}, {1, 3, 5});
  expect({{"expert_layer_period", 4}, {"expert_layer_offset", 0}}, {0, 4});
  expect({{"moe_layer_start_index", 1}, {"moe_layer_end_index", 4}, {"moe_layer_interval", 2}}, {1, 3});
  expect({{"moe_layer_start_index", 2}, {"moe_layer_end_index", -1}}, {2, 3, 4, 5});
  expect({{"moe_layer_start_index", {1, 1}}, {"moe_layer_end_index", {7, 6}}}, {1, 2, 3, 4, 5});
  expect({{"hybrid_override_pattern", "ME*E-M"}}, {1, 3});
  expect({{"layers_block_type", {"mamba", "moe", "attention", "moe", "mlp", "mamba"}}}, {1, 3});
  expect({{"mlp_layer_types", {"dense", "sparse", "dense", "sparse", "sparse", "sparse"}}}, {1, 3, 4, 5});
  expect({{"mlp_layer_types", {"hash_moe", "moe", "moe", "moe", "moe", "moe"}}}, {0, 1, 2, 3, 4, 5});
  expect({{"num_dense_layers", 4}}, {4, 5});
  expect({{"moe_layer_frequency", 3}}, {2, 5});
  // Which blocks are attention does not determine which layers have experts.
  const Json attention = {"mamba", "attention", "mamba", "attention", "mamba", "attention"};
  expect({{"layers_block_type", attention}, {"first_k_dense_replace", 3}}, {3, 4, 5});
  expect({{"layer_types", attention}, {"first_k_dense_replace", 4}}, {4, 5});
}

TEST(ModelLayers, NameThoseWhoseExpertsATableChooses) {
  const auto by_table = [](const Json& keys) { return layers_by(six_layers(keys)).table_layers; };
  EXPECT_THAT(by_table({{"mlp_layer_types", {"hash_moe", "moe", "moe", "hash_moe", "moe", "moe"}}}),
              ElementsAre(0, 3));
  EXPECT_THAT(by_table({{"num_hash_layers", 2}, {"first_k_dense_replace", 1}}), ElementsAre(1));
  EXPECT_THAT(by_table({{"num_hash_layers", 9}, {"first_k_dense_replace", 4}}), ElementsAre(4, 5));
  EXPECT_THAT(by_table({{"first_k_dense_replace", 4}}), IsEmpty());
}

TEST(ModelLayers, PredictionLayersAreNumberedBehindTheHiddenOnes) {
  const auto mtp = [](Json keys) {
    if (!keys.contains("hybrid_override_pattern")) keys["first_k_dense_replace"] = 1;
    return layers_by(six_layers(keys)).mtp_layers;
  };
  for (const char* key :
       {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers"})
    EXPECT_THAT(mtp({{key, 2}}), ElementsAre(6, 7)) << key;
  EXPECT_THAT(mtp({{"num_nextn_predict_layers", 0}}), IsEmpty());
  EXPECT_THAT(mtp({{"num_mtp_modules", 3}, {"use_mtp", false}}), IsEmpty());
  EXPECT_THAT(mtp({{"num_nextn_predict_layers", 2}, {"mtp_mlp_layer_types", {"dense", "sparse"}}}),
              ElementsAre(7));
  EXPECT_THAT(mtp({{"num_nextn_predict_layers", 1}, {"model_type", "mimo_v2_flash"}}), IsEmpty());
  const Json pattern = {{"hybrid_override_pattern", "ME*E-M"}, {"num_nextn_predict_layers", 1}};
  Json with = pattern;
  with["mtp_hybrid_override_pattern"] = "*E";
  EXPECT_THAT(mtp(with), ElementsAre(6));
  with["mtp_hybrid_override_pattern"] = "*-";
  EXPECT_THAT(mtp(with), IsEmpty());
  // Lists that extend beyond the hidden layers.
  const Json longer = {"dense", "sparse", "sparse", "sparse", "sparse", "sparse", "dense", "sparse"};
  EXPECT_THAT(mtp({{"num_nextn_predict_layers", 2}, {"mlp_layer_types", longer}}), ElementsAre(7));
  EXPECT_THAT(mtp({{"num_nextn_predict_layers", 2}, {"moe_layers_enum", {1, 2, 3, 4, 5, 6}}}),
              ElementsAre(6));
}

TEST(ModelLayers, ALanguageModelInsideAnotherIsFound) {
  const Json inner = six_layers({{"first_k_dense_replace", 2}});
  for (const char* key : {"text_config", "language_config", "llm_config"})
    EXPECT_EQ(layers_by({{key, inner}, {"vision_config", {{"num_hidden_layers", 27}}}}), layers_by(inner))
        << key;
  EXPECT_EQ(layers_by({{"thinker_config", {{"text_config", inner}}}}), layers_by(inner));
  // The outer config repeats the keys, as in some models.
  EXPECT_EQ(layers_by(six_layers({{"first_k_dense_replace", 2}, {"language_config", inner}})),
            layers_by(inner));
  EXPECT_EQ(layers_by({{"num_hidden_layers", 6}, {"language_config", inner}}), layers_by(inner));
  expect_no_layers(six_layers({{"first_k_dense_replace", 1}, {"text_config", inner}}),
                   HasSubstr("gives other layers with experts than the top level of the config"));
  Json broken = inner;
  broken["first_k_dense_replace"] = "two";
  expect_no_layers({{"text_config", broken}}, HasSubstr("text_config.first_k_dense_replace"));
}

TEST(ModelLayers, FamiliesWithExpertsInEveryLayerNeedNoKey) {
  EXPECT_THAT(moe_layers({{"model_type", "mixtral"}}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(moe_layers({{"model_type", "gpt_oss"}}), ElementsAre(0, 1, 2, 3, 4, 5));
  const Json dbrx = {{"model_type", "dbrx"}, {"n_layers", 3}, {"ffn_config", {{"moe_num_experts", 16}}}};
  EXPECT_EQ(layers_by(dbrx).num_experts, 16);
  EXPECT_THAT(layers_by(dbrx).moe_layers, ElementsAre(0, 1, 2));
}

TEST(ModelLayers, WhatSaysNoLayersIsRefusedByItsKeys) {
  const std::vector<std::pair<Json, std::vector<std::string>>> refusals = {
      // Rules that contradict each other; the message names both keys.
      {{{"first_k_dense_replace", 1}, {"moe_layer_freq", {0, 0, 1, 1, 1, 1}}},
       {"first_k_dense_replace", "moe_layer_freq", "2-5", "1-5"}},
      {{{"interleave_moe_layer_step", 1}, {"moe_layers", {1, 3, 5}}},
       {"interleave_moe_layer_step", "moe_layers", "1,3,5"}},
      {{{"moe_layer_start_index", {1, 2}}}, {"number 1 of each list"}},
      {{{"moe_layer_start_index", std::vector<int>(9, 1)}}, {"9 kinds of experts"}},
      {{{"num_layers", 7}, {"first_k_dense_replace", 1}}, {"num_layers: is 7, but num_hidden_layers is 6"}},
      {{{"num_mtp_layers", 1}, {"num_nextn_predict_layers", 2}, {"first_k_dense_replace", 1}},
       {"num_mtp_layers: is 1, but num_nextn_predict_layers is 2"}},
      // Lists that do not match the number of layers.
      {{{"moe_layer_freq", {0, 1, 1}}},
       {"moe_layer_freq: has entries for 3 layers", "but the model has 6; right would be 6"}},
      {{{"hybrid_override_pattern", "ME*"}}, {"has entries for 3 layers"}},
      {{{"mlp_layer_types", {"dense", "sparse"}}, {"num_nextn_predict_layers", 1}},
       {"right would be 6 or 7"}},
      {{{"mlp_layer_types", {"a", "b", "c", "d", "e", "f"}}}, {"has 'a'; known: sparse, moe, hash_moe, "}},
      {{{"moe_layer_freq", {0, 1, 2, 1, 1, 1}}}, {"moe_layer_freq[2]: is 2; allowed: 0..1"}},
      {{{"moe_layers", {6}}}, {"names layer 6, but the model has layers 0..5"}},
      {{{"moe_layers", {0, 1, 0, 1, 0, 1}}}, {"names layer 0 twice"}},
      {{{"moe_layers_enum", "3,,4"}}, {"not a list of layer numbers"}},
      {{{"mlp_only_layers", {-1}}}, {"names layer -1"}},
      {{{"hybrid_override_pattern", "ME*E-X"}}, {"has 'X'; known: M, E, *, -"}},
      // Configs without experts.
      {{{"first_k_dense_replace", 6}}, {"gives experts to none of the model"}},
      {{{"num_experts", 0}, {"first_k_dense_replace", 1}}, {"num_experts: is 0"}},
      {{{"num_experts", nullptr}, {"n_routed_experts", nullptr}, {"first_k_dense_replace", 1}},
       {"num_experts: is null"}},
      {{{"model_type", "gemma4_text"}, {"enable_moe_block", false}}, {"enable_moe_block: is false"}},
      {{{"num_hidden_layers", nullptr}, {"first_k_dense_replace", 1}}, {"num_hidden_layers: is missing"}},
      {{{"num_experts", nullptr}, {"model_type", "llama"}}, {"names no experts"}},
      {{{"num_experts", {8, 16}}, {"num_dense_layers", 1}}, {"num_experts: lists different numbers"}},
      // Configs that do not say which layers have experts.
      {{{"model_type", "brand_new"}},
       {"not in which layers (model_type 'brand_new')", "first_k_dense_replace"}},
      {{{"model_type", "deepseek_v3"}}, {"not in which layers"}},
      {{{"model_type", "deepseek_v3"}, {"moe_layer_freq", 1}}, {"first_k_dense_replace: is missing"}},
      // Impossible values; a key without the other key that it needs.
      {{{"first_k_dense_replace", -1}}, {"first_k_dense_replace: "}},
      {{{"first_k_dense_replace", 1.5}}, {"first_k_dense_replace: "}},
      {{{"decoder_sparse_step", 0}}, {"decoder_sparse_step: "}},
      {{{"moe_layer_freq", "every"}}, {"moe_layer_freq: "}},
      {{{"num_hidden_layers", 1 << 20}, {"num_dense_layers", 1}}, {"num_hidden_layers: "}},
      {{{"expert_layer_period", 0}}, {"expert_layer_"}},
      {{{"mlp_layer_types", "sparse"}}, {"mlp_layer_types: "}},
      {{{"moe_layers", 3}}, {"moe_layers: "}},
      {{{"num_nextn_predict_layers", 1 << 20}}, {"num_nextn_predict_layers: "}},
      {{{"moe_layer_interval", 2}}, {"moe_layer_start_index: "}},
      {{{"expert_layer_offset", 1}}, {"expert_layer_period: "}}};
  for (const auto& [keys, parts] : refusals)
    for (const std::string& part : parts) expect_no_layers(six_layers(keys), HasSubstr(part));
  EXPECT_EQ(layers_by(six_layers({{"num_experts", {8, 8}}, {"num_dense_layers", 1}})).num_experts, 8);
  EXPECT_EQ(layers_by({{"num_hidden_layers", 2}, {"first_k_dense_replace", 1}}).num_experts, 0);
  expect_no_layers(Json::object(), HasSubstr("names no experts"));
  expect_no_layers(Json::array(), HasSubstr("is not a JSON object"));
}

}  // namespace
}  // namespace evenkeel
