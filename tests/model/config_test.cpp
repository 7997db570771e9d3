// Facts that a config states, and values that it may not have: each refusal names the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

Json config(const std::string& name) {
  return Json::parse(read_text(repository_file("tests/data/configs/" + name + ".json")));
}

ModelDescription read(const Json& json) {
  return read_model_description(source_of(json.dump()));
}

template <class Matcher>
void expect_refused(const Json& json, const std::string& where, const Matcher& message) {
  try {
    read(json);
    FAIL() << "was read: " << where;
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), message);
    EXPECT_EQ(std::get<std::string>(error.data()[1].value), where) << error.what();
  }
}

TEST(ModelConfig, KeysThatAFamilyNeedsAreNamedWhenTheyAreMissing) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> needed = {
      {"mixtral-8x7b", {"intermediate_size", "num_key_value_heads", "num_local_experts"}},
      {"qwen3-30b-a3b", {"moe_intermediate_size", "num_experts", "num_key_value_heads"}},
      {"olmoe-1b-7b", {"intermediate_size", "num_experts"}},
      {"deepseek-v3",
       {"moe_intermediate_size", "n_routed_experts", "first_k_dense_replace", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size"}},
      {"gpt-oss-20b", {"num_local_experts", "intermediate_size"}}};
  for (const auto& [name, keys] : needed) {
    std::vector<std::string> all = keys;
    for (const char* key : {"model_type", "num_hidden_layers", "hidden_size", "vocab_size",
                            "num_attention_heads", "num_experts_per_tok"})
      all.emplace_back(key);
    for (const std::string& key : all) {
      Json json = config(name);
      json.erase(key);
      if (key == "model_type") json.erase("architectures");
      expect_refused(json, key, HasSubstr(key + ": is missing"));
    }
  }
}

TEST(ModelConfig, NumbersThatNoModelHasAreRefused) {
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"hidden_size", 0},       {"hidden_size", "4096"},      {"num_hidden_layers", -1},
      {"vocab_size", 1.5},      {"num_experts_per_tok", 129}, {"num_experts", 0},
      {"head_dim", 1 << 30},    {"decoder_sparse_step", 0},   {"mlp_only_layers", {48}},
      {"mlp_only_layers", {-1}}};
  for (const auto& [key, value] : wrong) {
    Json json = config("qwen3-30b-a3b");
    json[key] = value;
    expect_refused(json, key, HasSubstr(key + ": "));
  }
  Json uneven = config("qwen3-30b-a3b");
  uneven["num_key_value_heads"] = 5;
  expect_refused(uneven, "num_key_value_heads", HasSubstr("is 5, which does not divide the 32 heads"));
  Json headless = config("mixtral-8x7b");
  headless["num_attention_heads"] = 24;
  expect_refused(headless, "head_dim", HasSubstr("24 heads do not divide the hidden size 4096"));
  Json flag = config("mixtral-8x7b");
  flag["tie_word_embeddings"] = 1;
  expect_refused(flag, "tie_word_embeddings", HasSubstr("is a JSON number, not true or false"));
}

TEST(ModelConfig, DamagedNumbersThatWouldOverflowASumAreRefused) {
  Json json = config("deepseek-v3");
  json["num_hidden_layers"] = 65536;
  json["n_routed_experts"] = 65536;
  json["moe_intermediate_size"] = 1 << 24;
  expect_refused(json, "", HasSubstr("makes more weights than any machine holds"));
}

TEST(ModelConfig, AFamilyThatIsNotKnownIsRefusedWithThoseThatAre) {
  Json json = config("mixtral-8x7b");
  json["model_type"] = "llama";
  json["architectures"] = {"LlamaForCausalLM"};
  expect_refused(json, "model_type",
                 AllOf(HasSubstr("is 'llama', whose weights cannot be counted; known: mixtral, minimax_m2, "),
                       testing::EndsWith("hunyuan_v1_moe")));
  json["model_type"] = "jamba";
  expect_refused(json, "model_type", HasSubstr("is 'jamba', whose weights cannot be counted"));
  expect_refused(Json::array(), "", HasSubstr("is not a JSON object"));
  EXPECT_THROW(read_model_description(source_of("PK\3\4")), ParseError);
}

TEST(ModelConfig, AModelOfAnotherNameIsKnownByItsArchitecture) {
  Json json = config("mixtral-8x7b");
  json["model_type"] = "my_mixtral";
  EXPECT_EQ(read(json).family, "my_mixtral");
  json.erase("model_type");
  EXPECT_EQ(read(json).family, "mixtral");
  EXPECT_EQ(read(json).num_moe_layers(), 32);
}

TEST(ModelConfig, TwoNamesOfOneNumberMustAgree) {
  Json json = config("mixtral-8x7b");
  json["num_experts"] = 8;
  EXPECT_EQ(read(json).experts.count, 8);
  json["num_experts"] = 9;
  expect_refused(json, "num_local_experts",
                 HasSubstr("is 8, where num_experts is 9; right would be one number"));
}

TEST(ModelConfig, ALanguageModelInsideAnotherModelIsTheSameAsAlone) {
  const ModelDescription alone = read(config("kimi-k2"));
  const ModelDescription inside = read(config("kimi-k2.5"));
  EXPECT_EQ(inside.family, "kimi_k2");
  EXPECT_EQ(inside.experts.count, alone.experts.count);
  EXPECT_EQ(inside.has_experts, alone.has_experts);
  EXPECT_EQ(inside.dtype, "bfloat16");
  Json json = config("kimi-k2.5");
  json["text_config"].erase("kv_lora_rank");
  expect_refused(json, "text_config.kv_lora_rank", HasSubstr("text_config.kv_lora_rank: is missing"));
}

TEST(ModelConfig, SaysWhichLayersAreDense) {
  const auto dense_layers = [](const ModelDescription& model) {
    std::vector<int> dense;
    for (int layer = 0; layer < model.num_layers; ++layer)
      if (!model.has_experts[static_cast<std::size_t>(layer)]) dense.push_back(layer);
    return dense;
  };
  EXPECT_THAT(dense_layers(read(config("deepseek-v3"))), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(dense_layers(read(config("mixtral-8x7b"))), testing::IsEmpty());
  Json qwen = config("qwen3-30b-a3b");
  qwen["num_hidden_layers"] = 7;
  qwen["decoder_sparse_step"] = 2;
  qwen["mlp_only_layers"] = {5};
  EXPECT_THAT(dense_layers(read(qwen)), testing::ElementsAre(0, 2, 4, 5, 6));
  Json every_other = config("deepseek-v2-lite");
  every_other["num_hidden_layers"] = 6;
  every_other["moe_layer_freq"] = 2;
  EXPECT_THAT(dense_layers(read(every_other)), testing::ElementsAre(0, 1, 3, 5));
}

TEST(ModelConfig, ReadsTheTypeByEitherName) {
  Json json = config("mixtral-8x7b");
  EXPECT_EQ(read(json).dtype_bytes, 2);
  json.erase("torch_dtype");
  EXPECT_EQ(read(json).dtype_bytes, 0);
  json["dtype"] = "float32";
  EXPECT_EQ(read(json).dtype_bytes, 4);
  json["dtype"] = "int3";
  expect_refused(json, "dtype", HasSubstr("has 'int3'; known: bfloat16, float16, float32, auto"));
  json["dtype"] = "torch.float16";
  EXPECT_EQ(read(json).dtype, "float16");
  json["dtype"] = "auto";
  EXPECT_EQ(read(json).dtype_bytes, 0);
}

TEST(ModelConfig, WeightsThatAreNotCountedAreRefused) {
  Json json = config("deepseek-v2");
  json["mlp_bias"] = true;
  expect_refused(json, "mlp_bias", HasSubstr("is true, and the weights that it adds are not counted"));
  json["mlp_bias"] = false;
  EXPECT_NO_THROW(read(json));
}

Json four_layers(const std::string& type, const Json& keys) {
  Json json = {{"model_type", type},      {"num_hidden_layers", 4},     {"hidden_size", 24},
               {"vocab_size", 50},        {"num_attention_heads", 4},   {"num_key_value_heads", 2},
               {"head_dim", 6},           {"num_experts", 8},           {"num_experts_per_tok", 2},
               {"intermediate_size", 30}, {"moe_intermediate_size", 10}};
  json.update(keys);
  return json;
}

TEST(ModelConfig, LinearLayersAreAllButEveryFourthWhereNoListSaysThem) {
  const Json keys = {{"shared_expert_intermediate_size", 11},
                     {"linear_num_key_heads", 2},
                     {"linear_num_value_heads", 4},
                     {"linear_key_head_dim", 5},
                     {"linear_value_head_dim", 7},
                     {"linear_conv_kernel_dim", 4}};
  Json json = four_layers("qwen3_next", keys);
  const auto linear = [&] {
    std::vector<bool> flags;
    for (const LayerParts& parts : read(json).layers)
      flags.push_back(parts.mixer == LayerParts::Mixer::delta);
    return flags;
  };
  EXPECT_THAT(linear(), testing::ElementsAre(true, true, true, false));
  json["full_attention_interval"] = 2;
  EXPECT_THAT(linear(), testing::ElementsAre(true, false, true, false));
  json["layer_types"] = {"full_attention", "linear_attention", "full_attention", "linear_attention"};
  EXPECT_THAT(linear(), testing::ElementsAre(false, true, false, true));
  json["layer_types"] = {"full_attention"};
  expect_refused(json, "layer_types", HasSubstr("says something of 1 layers, where the model has 4"));
  json["layer_types"] = {"full_attention", "convolution", "full_attention", "full_attention"};
  expect_refused(json, "layer_types", HasSubstr("has 'convolution'; known: linear_attention"));
}

TEST(ModelConfig, LayersOfOneBlockAreReadFromAPatternOrAList) {
  const Json keys = {{"hybrid_override_pattern", "ME*-"},
                     {"n_routed_experts", 8},
                     {"mamba_num_heads", 4},
                     {"mamba_head_dim", 6},
                     {"n_groups", 2},
                     {"ssm_state_size", 8},
                     {"conv_kernel", 4},
                     {"moe_shared_expert_intermediate_size", 11}};
  Json json = four_layers("nemotron_h", keys);
  const ModelDescription by_pattern = read(json);
  EXPECT_THAT(by_pattern.has_experts, testing::ElementsAre(false, true, false, false));
  EXPECT_EQ(by_pattern.dense_intermediate, 30);
  json.erase("hybrid_override_pattern");
  json.erase("num_hidden_layers");
  json["layers_block_type"] = {"mamba", "moe", "attention", "mlp"};
  const ModelDescription by_list = read(json);
  for (std::size_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(by_list.layers[layer].mixer, by_pattern.layers[layer].mixer);
    EXPECT_EQ(by_list.layers[layer].network, by_pattern.layers[layer].network);
  }
  json["mlp_bias"] = true;
  expect_refused(json, "mlp_bias", HasSubstr("weights that it adds are not counted"));
}

TEST(ModelConfig, WideLayersAreReadByKeysForAllOrForEach) {
  const Json keys = {
      {"enable_moe_block", true},
      {"top_k_experts", 2},
      {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
      {"global_head_dim", 12},
      {"num_global_key_value_heads", 1},
      {"attention_k_eq_v", true}};
  Json json = four_layers("gemma4_text", keys);
  const ModelDescription by_keys = read(json);
  EXPECT_EQ(by_keys.wide_attention->head_dim, 12);
  EXPECT_EQ(by_keys.wide_attention->kv_heads, 1);
  json.erase("global_head_dim");
  json["per_layer_config"] = {{"1", {{"head_dim", 12}, {"num_key_value_heads", 1}}},
                              {"3", {{"head_dim", 12}, {"num_key_value_heads", 1}}}};
  EXPECT_EQ(read(json).wide_attention->head_dim, 12);
  json["per_layer_config"]["3"]["head_dim"] = 16;
  expect_refused(json, "per_layer_config.3.head_dim", HasSubstr("counted alike"));
  json["per_layer_config"].erase("3");
  expect_refused(json, "per_layer_config",
                 HasSubstr("speaks of the layers 1, and those with full attention are 1, 3"));
  json["per_layer_config"] = {{"01", {{"head_dim", 20}}}, {"03", {{"head_dim", 20}}}};
  EXPECT_EQ(read(json).wide_attention->head_dim, 20);
  json["per_layer_config"]["1"] = Json::object();
  expect_refused(json, "per_layer_config", HasSubstr("has layer 1 twice"));
  json["per_layer_config"] = {{"first", Json::object()}};
  expect_refused(json, "per_layer_config", HasSubstr("has 'first', where objects by the number of a layer"));
  json.erase("per_layer_config");
  json["hidden_size_per_layer_input"] = 256;
  expect_refused(json, "hidden_size_per_layer_input", HasSubstr("is 256, and the weights that it adds"));
}

TEST(ModelConfig, CompressedLayersAreReadByWordsOrByTheirRates) {
  const Json keys = {{"n_routed_experts", 8}, {"q_lora_rank", 9},    {"o_lora_rank", 7},
                     {"o_groups", 2},         {"index_n_heads", 3},  {"index_head_dim", 5},
                     {"hc_mult", 4},          {"num_hash_layers", 1}};
  Json json = four_layers("deepseek_v4", keys);
  expect_refused(json, "layer_types", HasSubstr("is missing"));
  json["compress_ratios"] = {0, 4, 128, 4, 0};
  const ModelDescription by_rates = read(json);
  json.erase("compress_ratios");
  json["layer_types"] = {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                         "compressed_sparse_attention"};
  json["mlp_layer_types"] = {"hash_moe", "moe", "moe", "moe"};
  const ModelDescription by_words = read(json);
  for (std::size_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(by_words.layers[layer].compression, by_rates.layers[layer].compression) << layer;
    EXPECT_EQ(by_words.layers[layer].router_table, layer == 0);
    EXPECT_EQ(by_rates.layers[layer].router_table, layer == 0);
  }
  json["compress_rates"] = {{"compressed_sparse_attention", 8}};
  EXPECT_EQ(read(json).attention.compressed->sparse_rate, 8);
  EXPECT_EQ(read(json).attention.compressed->heavy_rate, 128);
  json.erase("layer_types");
  json["compress_ratios"] = {0, 4, 128, 8};
  expect_refused(json, "compress_ratios", HasSubstr("has '4'; known: 0, 8, 128"));
  json["compress_ratios"] = {0, 8};
  expect_refused(json, "compress_ratios", HasSubstr("says something of 2 layers, where the model has 4"));
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  expect_refused(json, "layer_types", HasSubstr("has 'full_attention'; known: sliding_attention"));
}

TEST(ModelConfig, IndexersThatLayersShareMustBeSaid) {
  Json json = config("deepseek-v3");
  json["model_type"] = "glm_moe_dsa";
  json["index_n_heads"] = 64;
  json["index_head_dim"] = 128;
  EXPECT_TRUE(read(json).layers[60].indexer);
  json["index_topk_freq"] = 4;
  expect_refused(json, "indexer_types", HasSubstr("is missing, where other keys say that layers share"));
  json["indexer_types"] = Json::array({"full"});
  expect_refused(json, "indexer_types", HasSubstr("says something of 1 layers, where the model has 61"));
  json["indexer_types"] = std::vector<std::string>(61, "half");
  expect_refused(json, "indexer_types", HasSubstr("has 'half'; known: full, shared"));
}

TEST(ModelConfig, ANumberThatIsListedForEveryLayerMustBeOne) {
  Json json = four_layers("hunyuan_v1_moe", {{"moe_topk", {2, 2, 2, 2}}, {"num_experts", {8, 8, 8, 8}}});
  EXPECT_EQ(read(json).experts.top_k, 2);
  json["moe_topk"] = {2, 2, 3, 2};
  expect_refused(json, "moe_topk", HasSubstr("lists different numbers"));
}

}  // namespace
}  // namespace evenkeel
