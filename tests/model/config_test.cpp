// Models described by config.json: sizes, weights, notes, and refused values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "evenkeel/io/model_config.h"
#include "evenkeel/model/family.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string config_path(const std::string& name) {
  return repository_file("tests/data/configs/" + name + ".json");
}

// A model's config with some keys changed; null removes a key.
Json config(const std::string& name, const std::string& keys = "{}") {
  Json json = Json::parse(read_text(config_path(name)));
  json.merge_patch(Json::parse(keys));
  return json;
}

ModelDescription read(const Json& json) {
  return read_model_description(source_of(json.dump()));
}

// Expects an error whose message contains `part` and whose key is `where`.
void expect_refused(const Json& json, const std::string& where, const std::string& part) {
  try {
    read(json);
    ADD_FAILURE() << "was read: " << where;
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_EQ(std::get<std::string>(error.data()[1].value), where) << error.what();
  }
}

TEST(Families, NoNameIsOfTwo) {
  std::set<std::string_view> names;
  for (const Family& family : known_families()) {
    for (const std::string_view type : family.model_types) {
      EXPECT_TRUE(names.insert(type).second) << type;
      EXPECT_EQ(known_family(type), &family) << type;
    }
    for (const std::string_view name : family.architectures) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(family_of_architecture(std::string(name) + "ForCausalLM"), &family) << name;
      EXPECT_EQ(family_of_architecture(std::string(name) + "ForTokenClassification"), nullptr) << name;
    }
    EXPECT_TRUE(!family.tensors || family.not_permuted.empty()) << family.name();
  }
  EXPECT_EQ(known_family("llama"), nullptr);
}

TEST(ModelConfig, PublishedModelsHaveTheTotalsThatTheirMakersState) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"mixtral-8x7b", 46'702'792'704},        // 46.7B
      {"qwen3-30b-a3b", 30'532'122'624},       // 30.5B
      {"olmoe-1b-7b", 6'919'161'856},          // 6.9B
      {"deepseek-v2", 235'741'434'880},        // 236B
      {"deepseek-v2-lite", 15'706'484'224},    // 15.7B
      {"deepseek-v3", 671'026'419'200},        // 671B, the main model
      {"gpt-oss-20b", 20'914'757'184},         // 20.9B
      {"gpt-oss-120b", 116'829'156'672},       // 116.8B
      {"qwen3-next-80b-a3b", 79'674'391'296},  // 80B
      {"glm-4.5-air", 106'852'251'264},        // 106B
      {"glm-4.7-flash", 29'943'393'920},       // 30B
      {"glm-5", 743'911'218'432},              // 744B
      {"minimax-m2", 228'689'764'864},         // 230B
      {"llama-4-scout", 107'769'861'120},      // 109B, with its image tower
      {"gemma-4-26b-a4b", 25'233'141'790},     // 25.2B
      {"ernie-4.5-21b-a3b", 21'825'437'888},   // 21B
      {"kimi-k2", 1'026'408'232'448},          // 1T
      {"kimi-k2.5", 1'026'408'232'448}};       // 1T, the language model only
  for (const auto& [name, total] : published) {
    const ModelDescription model = read_model_description(config_path(name));
    EXPECT_EQ(model.parameters(), total) << name;
    EXPECT_EQ(model.parameters(WeightKind::experts),
              model.expert_parameters() * model.experts.count * model.num_moe_layers())
        << name;
    EXPECT_EQ(model.num_moe_layers(), std::ssize(read_model_layers(config_path(name)).moe_layers)) << name;
  }
}

TEST(ModelConfig, KeysThatAFamilyNeedsAreNamedWhenTheyAreMissing) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> needed = {
      {"mixtral-8x7b", {"intermediate_size", "num_key_value_heads", "num_local_experts"}},
      {"qwen3-30b-a3b", {"moe_intermediate_size", "num_experts", "num_key_value_heads"}},
      {"deepseek-v3",
       {"moe_intermediate_size", "n_routed_experts", "first_k_dense_replace", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size", "n_shared_experts"}},
      {"gpt-oss-20b", {"num_local_experts", "intermediate_size", "head_dim"}},
      {"qwen3-next-80b-a3b", {"linear_num_value_heads", "linear_conv_kernel_dim"}}};
  for (auto [name, keys] : needed) {
    keys.insert(keys.end(), {"num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads",
                             "num_experts_per_tok"});
    for (const std::string& key : keys) {
      Json json = config(name);
      json.erase(key);
      expect_refused(json, key, key + ": is missing");
    }
  }
}

TEST(ModelConfig, ValuesThatNoModelHasAreRefused) {
  struct Wrong {
    const char* config;
    const char* keys;  // the changed keys, as JSON
    const char* where;
    const char* part;
  };
  for (const auto& [name, keys, where, part] : std::vector<Wrong>{
           {"qwen3-30b-a3b", R"({"hidden_size": 0})", "hidden_size", "is 0; allowed: 1.."},
           {"qwen3-30b-a3b", R"({"hidden_size": "4096"})", "hidden_size", "string"},
           {"qwen3-30b-a3b", R"({"vocab_size": 1.5})", "vocab_size", "1.5"},
           {"qwen3-30b-a3b", R"({"num_experts_per_tok": 129})", "num_experts_per_tok", "1..128"},
           {"qwen3-30b-a3b", R"({"head_dim": 1073741824})", "head_dim", "allowed: 1.."},
           {"qwen3-30b-a3b", R"({"num_key_value_heads": 5})", "num_key_value_heads",
            "is 5, which does not divide the 32 heads"},
           {"mixtral-8x7b", R"({"num_attention_heads": 24})", "head_dim",
            "24 heads do not divide the hidden size 4096"},
           {"mixtral-8x7b", R"({"tie_word_embeddings": 1})", "tie_word_embeddings",
            "is a JSON number, not true or false"},
           {"mixtral-8x7b", R"({"num_experts": 9})", "num_local_experts",
            "is 8, but num_experts is 9; both must be the same number"},
           {"mixtral-8x7b", R"({"num_experts_per_tok": [2, 3]})", "num_experts_per_tok",
            "lists different numbers"},
           {"mixtral-8x7b", R"({"dtype": "int3"})", "dtype",
            "has 'int3'; known: bfloat16, float16, float32, auto"},
           {"kimi-k2.5", R"({"text_config": {"kv_lora_rank": null}})", "text_config.kv_lora_rank",
            "text_config.kv_lora_rank: is missing"},
           {"qwen3-next-80b-a3b", R"({"layer_types": ["full_attention"]})", "layer_types",
            "has entries for 1 layers, but the model has 48"},
           {"gemma-4-26b-a4b", R"({"layer_types": ["convolution"], "num_hidden_layers": 1})", "layer_types",
            "has 'convolution'; known: full_attention"},
           {"gemma-4-26b-a4b", R"({"per_layer_config": {"first": {}}})", "per_layer_config",
            "has 'first'; each key must be a layer number"},
           {"gemma-4-26b-a4b", R"({"per_layer_config": {"5": {}, "05": {}}})", "per_layer_config",
            "has layer 5 twice"},
           {"gemma-4-26b-a4b", R"({"per_layer_config": {"05": {"head_dim": 12}, "11": {"head_dim": 16}}})",
            "per_layer_config.11.head_dim", "differs from that of other layers"},
           {"gemma-4-26b-a4b", R"({"per_layer_config": {"5": {}}})", "per_layer_config",
            "has layers 5, but the layers with full attention are 5, 11, 17, 23, 29"},
           {"glm-5", R"({"index_topk_freq": 4})", "indexer_types",
            "is missing, but other keys say that layers share"},
           {"glm-5", R"({"indexer_types": ["full"]})", "indexer_types", "has entries for 1 layers"},
           {"deepseek-v3",
            R"({"num_hidden_layers": 4000, "n_routed_experts": 65536, "moe_intermediate_size": 16777216})",
            "", "sizes that make more weights than any machine holds"},
           {"deepseek-v3", R"({"num_hidden_layers": 65536})", "",
            "has 65537 layers; weights are counted for at most 4096"}})
    expect_refused(config(name, keys), where, part);
  expect_refused(Json::array(), "", "is not a JSON object");
  EXPECT_THROW(read_model_description(source_of("PK\3\4")), ParseError);
}

TEST(ModelConfig, ReadsTheTypeAndTheFamilyByEitherName) {
  for (const auto& [keys, bytes] : {std::pair(R"({})", 2),
                                    {R"({"torch_dtype": null})", 0},
                                    {R"({"dtype": "float32"})", 4},
                                    {R"({"dtype": "torch.float16"})", 2},
                                    {R"({"dtype": "auto", "torch_dtype": null})", 0}})
    EXPECT_EQ(read(config("mixtral-8x7b", keys)).dtype_bytes, bytes) << keys;
  EXPECT_EQ(read(config("mixtral-8x7b", R"({"model_type": "my_mixtral"})")).family, "my_mixtral");
  EXPECT_EQ(read(config("mixtral-8x7b", R"({"model_type": null})")).family, "mixtral");
  EXPECT_EQ(read(config("kimi-k2.5")).family, "kimi_k2");
}

TEST(ModelConfig, WithoutARuleForItsWeightsAModelHasSizesAlone) {
  const std::string four = R"({"num_hidden_layers": 4, "first_k_dense_replace": null, "moe_layer_freq": null,
                               "head_dim": 6, "moe_shared_expert_intermediate_size": 11, )";
  for (const char* keys :
       {R"("model_type": "nemotron_h", "hybrid_override_pattern": "ME*-"})",
        R"("model_type": "nemotron_h", "layers_block_type": ["mamba", "moe", "attention", "mlp"]})",
        R"("model_type": "new", "architectures": [], "mlp_layer_types": ["mlp", "moe", "mlp", "mlp"]})"}) {
    const ModelDescription model = read(config("deepseek-v2-lite", four + keys));
    EXPECT_TRUE(model.weights.empty() && model.notes.empty());
    EXPECT_THAT(model.has_experts, ElementsAre(false, true, false, false));
    EXPECT_EQ(model.experts.intermediate, 1408);
  }
}

TEST(ModelConfig, WeightsThatNoRuleCountsAreNoted) {
  const auto notes = [](const char* name, const char* keys) { return read(config(name, keys)).notes; };
  EXPECT_THAT(notes("deepseek-v2", R"({"mlp_bias": true, "hidden_size_per_layer_input": 256})"),
              ElementsAre("mlp_bias is set, but the weights that it adds are not counted",
                          HasSubstr("hidden_size_per_layer_input is set")));
  EXPECT_THAT(notes("deepseek-v2", R"({"mlp_bias": false, "hidden_size_per_layer_input": 0})"),
              testing::IsEmpty());
  EXPECT_THAT(notes("kimi-k2.5", "{}"), ElementsAre(HasSubstr("vision_config is set")));
}

}  // namespace
}  // namespace evenkeel
