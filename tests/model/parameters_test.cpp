// Weights counted from a config, against the checkpoints that transformers makes of tiny models and against
// the published totals of large ones.
#include "evenkeel/model/parameters.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "evenkeel/io/model_config.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;

std::map<std::string, std::int64_t> counts_of(const ModelDescription& model) {
  const ModelParameters sum = model_parameters(model);
  std::map<std::string, std::int64_t> counts = {
      {"embedding", sum.embedding},        {"head", sum.head},
      {"final_norm", sum.final_norm},      {"norms", sum.layers.norms},
      {"attention", sum.layers.attention}, {"router", sum.layers.router},
      {"experts", sum.layers.experts},     {"shared_experts", sum.layers.shared_experts},
      {"dense", sum.layers.dense},         {"total", sum.total()}};
  std::erase_if(counts, [](const auto& kind) { return kind.second == 0; });
  return counts;
}

TEST(Parameters, AreThoseOfTheCheckpointsOfTinyModelsOfEveryFamilyKindByKind) {
  const Json file = Json::parse(read_text(repository_file("tests/data/model_parameters.json")));
  ASSERT_EQ(file["models"].size(), 11U);
  for (const auto& [label, model] : file["models"].items())
    EXPECT_EQ(counts_of(read_model_description(source_of(model["config"].dump()))),
              (model["counts"].get<std::map<std::string, std::int64_t>>()))
        << label;
}

struct Published {
  const char* config;
  std::int64_t total;  // of the published checkpoint, to the weight
  const char* said;    // by its makers
};

class PublishedModel : public testing::TestWithParam<Published> {};

TEST_P(PublishedModel, HasTheTotalThatItsMakersState) {
  const std::string path = repository_file("tests/data/configs/") + GetParam().config + ".json";
  EXPECT_EQ(model_parameters(read_model_description(path)).total(), GetParam().total) << GetParam().said;
}

INSTANTIATE_TEST_SUITE_P(
    Totals, PublishedModel,
    testing::Values(
        Published{"mixtral-8x7b", 46'702'792'704, "46.7B"},
        Published{"qwen3-30b-a3b", 30'532'122'624, "30.5B"}, Published{"olmoe-1b-7b", 6'919'161'856, "6.9B"},
        Published{"deepseek-v2", 235'741'434'880, "236B"},
        Published{"deepseek-v2-lite", 15'706'484'224, "15.7B"},
        Published{"deepseek-v3", 671'026'419'200, "671B, the main model"},
        Published{"gpt-oss-20b", 20'914'757'184, "20.9B"},
        Published{"gpt-oss-120b", 116'829'156'672, "116.8B"},
        Published{"qwen3-next-80b-a3b", 79'674'391'296, "80B"},
        Published{"glm-4.5-air", 106'852'251'264, "106B"}, Published{"glm-4.7-flash", 29'943'393'920, "30B"},
        Published{"glm-5", 743'911'218'432, "744B"}, Published{"minimax-m2", 228'689'764'864, "230B"},
        Published{"llama-4-scout", 107'769'861'120, "109B, with its tower for images"},
        Published{"gemma-4-26b-a4b", 25'233'141'790, "25.2B"},
        Published{"ernie-4.5-21b-a3b", 21'825'437'888, "21B"}, Published{"kimi-k2", 1'026'408'232'448, "1T"},
        Published{"kimi-k2.5", 1'026'408'232'448, "1T, the language model alone"}),
    [](const auto& model) {
      std::string name = model.param.config;
      std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
      return name;
    });

TEST(Parameters, OfALayerOfDeepSeekV3AreThoseThatWereCountedByHand) {
  const ModelDescription model =
      read_model_description(repository_file("tests/data/configs/memfine-model-1.json"));
  EXPECT_EQ(expert_parameters(model), 44'040'192);
  const LayerParameters dense = layer_parameters(model, LayerId(2));
  const LayerParameters sparse = layer_parameters(model, LayerId(3));
  EXPECT_EQ(dense.dense, 396'361'728);
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(sparse.experts, 256 * 44'040'192LL);
  EXPECT_EQ(sparse.shared_experts, 44'040'192);
  EXPECT_EQ(sparse.router, 1'835'008 + 256);
  EXPECT_EQ(sparse.attention, 187'105'280 + 1536 + 512);  // with its norms
  EXPECT_EQ(model_parameters(model).embedding, 926'679'040);
}

}  // namespace
}  // namespace evenkeel
