// The tensors that frameworks keep, compared with independent sums; recomputation; fully sharded weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "evenkeel/training_memory/fit.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

using Bytes = std::map<std::string, std::int64_t>;

// One of eight devices in training; every layer's tensors are kept and nothing is recomputed.
MemorySetup every_layer() {
  MemorySetup setup;
  setup.parallel = {.expert = 8, .data = 8};
  setup.sequence = 1000;
  setup.full_recompute = false;
  setup.extra = {.kept_tensors = true, .every_layer = true, .shared_experts = true};
  return setup;
}

Bytes active(const ModelDescription& model, const MemorySetup& setup, int stage = 0,
             std::int64_t received = 3000) {
  Bytes bytes;
  for (const ActiveItem& item : MemoryModel(model, setup).active_items(stage, received, 1))
    bytes[std::string(item.name)] = item.bytes;
  return bytes;
}

TEST(KeptTensors, OfLatentAttentionDenseLayersAndSharedExperts) {
  // 61 layers, 58 of them with experts; 128 heads with queries and keys of 192 and values of 128; latents of
  // 1536 and 512, plus 64 for position.
  const std::int64_t s = 1000, r = 3000, two = 2;
  EXPECT_EQ(active(model_named("deepseek-v3"), every_layer()),
            (Bytes{{"attention_norm", 61 * s * 7168 * two},
                   {"qkv_input", 61 * s * 7168 * two},
                   {"latents", 61 * s * (2 * 1536 + 2 * 512 + 64) * two},
                   {"queries", 61 * s * 128 * 192 * two},
                   {"keys", 61 * s * 128 * 192 * two},
                   {"values", 61 * s * 128 * 128 * two},
                   {"output_input", 61 * s * 128 * 128 * two},
                   {"ffn_norm", 61 * s * 7168 * two},
                   {"router_input", 58 * s * 7168 * two},
                   {"router_scores", 58 * s * 256 * 2 * 4},
                   {"expert_input", 58 * r * 7168 * two},
                   {"expert_hidden", 58 * r * 2 * 2048 * two},
                   {"expert_activation", 58 * r * 2048 * two},
                   {"shared_experts", 58 * s * 3 * 2048 * two},
                   {"dense_input", 3 * s * 7168 * two},
                   {"dense_hidden", 3 * s * 3 * 18432 * two}}));
}

TEST(KeptTensors, OfGroupedAttentionWithNormsOfQueriesAndKeysInStages) {
  MemorySetup setup = every_layer();
  setup.parallel = {.tensor = 2, .pipeline = 4, .expert = 8, .data = 8, .expert_tensor = 2};
  setup.extra.expert_outputs = true;
  // The second of four stages has 12 of 48 layers and three micro-batches in flight.
  const std::int64_t layers = 12 * 3, s = 1000 / 2, r = 3000 / 2, two = 2;
  EXPECT_EQ(active(model_named("qwen3-30b-a3b"), setup, 1),
            (Bytes{{"attention_norm", layers * s * 2048 * two},
                   {"qkv_input", layers * s * 2048 * two},
                   {"query_key_norm", layers * s * (32 + 4) * 128 * two},
                   {"queries", layers * s * 32 * 128 * two},
                   {"keys", layers * s * 4 * 128 * two},
                   {"values", layers * s * 4 * 128 * two},
                   {"output_input", layers * s * 32 * 128 * two},
                   {"ffn_norm", layers * s * 2048 * two},
                   {"router_input", layers * s * 2048 * two},
                   {"router_scores", layers * s * 128 * 2 * 4},
                   {"expert_input", layers * r * 2048 * two},
                   {"expert_hidden", layers * r * 768 * two},
                   {"expert_activation", layers * r * 384 * two},
                   {"expert_output", layers * r * 2048 * two}}));
}

TEST(KeptTensors, ComputedAgainTheyAreThereForOneLayerAtATime) {
  const ModelDescription model = model_named("deepseek-v3");
  const Bytes all = active(model, every_layer());
  const std::vector<std::pair<bool SelectiveRecompute::*, std::vector<std::string>>> parts = {
      {&SelectiveRecompute::core_attn, {}},
      {&SelectiveRecompute::layernorm, {"qkv_input", "router_input", "dense_input"}},
      {&SelectiveRecompute::mla_up_proj, {"queries", "keys", "values"}},
      {&SelectiveRecompute::moe_act, {"expert_activation"}},
      {&SelectiveRecompute::mlp, {"dense_hidden"}},
      {&SelectiveRecompute::moe,
       {"router_scores", "expert_input", "expert_hidden", "expert_activation", "shared_experts"}},
      {&SelectiveRecompute::shared_experts, {"shared_experts"}}};
  for (const auto& [part, names] : parts) {
    MemorySetup setup = every_layer();
    setup.selective.*part = true;
    Bytes expected = all;
    for (const std::string& name : names) {
      const bool attention = name == "qkv_input" || name == "queries" || name == "keys" || name == "values";
      expected[name] /= attention ? 61 : name.starts_with("dense") ? 3 : 58;
    }
    EXPECT_EQ(active(model, setup), expected);
  }
}

TEST(KeptTensors, AllComputedAgainIsOneLayerAndTheInputsOfAll) {
  MemorySetup setup = every_layer();
  setup.full_recompute = true;
  const Bytes bytes = active(model_named("deepseek-v3"), setup, 0, 8000);
  EXPECT_EQ(bytes.at("layer_inputs"), 61 * 1000 * 7168 * 2);
  EXPECT_EQ(bytes.at("expert_input"), 8000 * 7168 * 2);
  EXPECT_FALSE(bytes.contains("dense_hidden"));
  // With few rows, a layer with experts takes less than a dense one.
  const Bytes few = active(model_named("deepseek-v3"), setup, 0, 300);
  EXPECT_EQ(few.at("dense_hidden"), 1000 * 3 * 18432 * 2);
  EXPECT_FALSE(few.contains("expert_input"));
}

TEST(KeptTensors, GradientsAreThoseOfOneLayersTensors) {
  const ModelDescription model = model_named("deepseek-v3");
  MemorySetup setup = every_layer();
  setup.extra.layer_gradients = true;
  Bytes bytes = active(model, setup, 0, 8000);
  const std::int64_t gradients = bytes.at("layer_gradients");
  bytes.erase("layer_gradients");
  std::int64_t one_layer = 0;
  for (const auto& [name, all] : bytes) {
    const bool network = name.starts_with("expert") || name.starts_with("router") || name == "shared_experts";
    if (name.starts_with("dense")) continue;
    // Scores are f32; their gradients have the activation type.
    one_layer += all / (network ? 58 : 61) / (name == "router_scores" ? 2 : 1);
  }
  EXPECT_EQ(gradients, one_layer);
  setup.full_recompute = true;  // recomputation does not change the gradients
  EXPECT_EQ(active(model, setup, 0, 8000).at("layer_gradients"), gradients);
}

// The two numbers are scores and probabilities.
TEST(KeptTensors, UnfusedAttentionKeepsTwoNumbersOfEachPairOfTokensAndHead) {
  MemorySetup setup = every_layer();
  setup.unfused_attention = true;
  setup.micro_batch = 3;
  const ModelDescription model = model_named("qwen3-30b-a3b");  // 48 layers with 32 heads
  EXPECT_EQ(active(model, setup).at("attention_scores"), 48LL * 3 * 1000 * 1000 * 32 * 2 * 2);
  setup.selective.core_attn = true;
  EXPECT_EQ(active(model, setup).at("attention_scores"), 3LL * 1000 * 1000 * 32 * 2 * 2);
}

TEST(KeptTensors, OfAllChunksUnlessComputedAgain) {
  const ModelDescription model = model_named("qwen3-30b-a3b");
  MemorySetup setup = every_layer();
  setup.extra.layer_gradients = true;
  const auto bytes = [&](std::int64_t chunks) {
    return total_bytes(MemoryModel(model, setup).active_items(0, 4000, chunks));
  };
  // The gradients of one layer's rows cover only one chunk; a row has h + 3 g numbers.
  EXPECT_EQ(bytes(1) - bytes(4), 3000 * (2048 + 3 * 768) * 2);
  // Eq. 8 subtracts the bytes that all chunks keep.
  const MemoryModel memory(model, setup);
  const std::int64_t available = bytes(4);
  EXPECT_EQ(memory.most_received(0, available, 0, 4000), 1000);
  setup.selective.moe = true;
  EXPECT_EQ(bytes(1) - bytes(4), 3000 * (2048 + 3 * 768) * 2 * 2);
}

TEST(KeptTensors, ChunksAreTheFewestWithWhichAllFits) {
  const ModelDescription model = model_named("qwen3-30b-a3b");
  MemorySetup setup = every_layer();
  setup.full_recompute = true;
  setup.extra.communication_buffers = true;
  setup.extra.layer_gradients = true;
  const MemoryModel memory(model, setup);
  const auto bytes = [&](std::int64_t chunks) { return total_bytes(memory.active_items(0, 8000, chunks)); };
  for (const std::int64_t chunks : {1, 2, 3, 7, 50, 1000, 7999}) {
    const DeviceMemory device{.available_bytes = bytes(chunks), .static_bytes = 0, .bins = {chunks, 8000}};
    const StageFit fit = fit_stage(memory, 0, 8000, device);
    EXPECT_TRUE(fit.fits) << chunks;
    EXPECT_LE(fit.choice.least_chunks, chunks);
    EXPECT_LE(bytes(fit.choice.least_chunks), device.available_bytes);
    EXPECT_TRUE(fit.choice.least_chunks == 1 || bytes(fit.choice.least_chunks - 1) > device.available_bytes);
    EXPECT_TRUE(fit.choice.promised);
    EXPECT_GE(fit.most_received * fit.choice.least_chunks, 8000);
  }
  const DeviceMemory small{.available_bytes = bytes(8000) - 1, .static_bytes = 0, .bins = {1, 8000}};
  EXPECT_EQ(fit_stage(memory, 0, 8000, small).choice.least_chunks, 0);
}

TEST(KeptTensors, KeysAndValuesOfAHeadAreOnAllDevicesThatShareIt) {
  const ModelDescription model = model_named("qwen3-30b-a3b");  // four key heads of 128
  MemorySetup setup = every_layer();
  setup.extra.replicated = true;
  const auto attention = [&](std::int64_t tensor) {
    setup.parallel = {.tensor = tensor, .expert = 8, .data = 8};
    const auto items = MemoryModel(model, setup).static_items(0);
    return std::ranges::find(items, "attention", &StaticItem::name)->weights;
  };
  // With twice the devices, each holds query and output weights of half as many heads.
  EXPECT_EQ(attention(4) - attention(8), 48 * (std::int64_t{4} * 128 * 2048) * 2);
  EXPECT_EQ(active(model, setup).at("keys"), 48 * 1000 * 128 * 2);
}

// Each tensor is cut along its first axis, or along its second if there are fewer experts than devices. The
// fullest device has the larger part.
TEST(FullySharded, EachTensorIsSpreadOverTheDevicesThatHaveItAndTwoLayersAreGathered) {
  const ModelDescription model = model_named("deepseek-v3");
  MemorySetup setup = every_layer();
  setup.extra.replicated = true;
  const auto up = [](std::int64_t number, std::int64_t parts) { return (number + parts - 1) / parts; };
  for (const int way : {0, 1, 2}) {
    setup.extra.sharded_optimizer = way == 0;  // only optimizer states are cut, as one flat array
    setup.extra.fully_sharded = way != 0;
    setup.extra.first_axis_alone = way == 1;
    for (const std::int64_t expert : {8, 64, 256}) {  // 32, 4, 1 experts per part, over 8, 16, 2 devices
      const std::int64_t data = expert == 64 ? 256 : 128;
      setup.parallel = {.tensor = 2, .expert = expert, .data = data, .context = 2};
      std::map<std::string_view, std::int64_t> expected, trained, states;
      for (const Weight& weight : model.weights) {
        if (weight.layer >= model.num_layers) continue;
        std::vector<std::int64_t> shape = weight.shape;
        const bool experts = weight.kind == WeightKind::experts;
        const std::int64_t devices = experts ? 4 * data / expert : 2 * data;
        if (experts) shape[0] /= expert;
        if (!experts && weight.axis != uncut) shape[static_cast<std::size_t>(weight.axis)] /= 2;
        const std::int64_t whole = product(shape);
        std::int64_t& cut = shape[experts && shape[0] < devices && way != 1 ? 1 : 0];
        cut = up(cut, devices);
        const std::string_view kind = weight_kinds[static_cast<std::size_t>(weight.kind)];
        expected[kind] += way == 0 ? whole : product(shape);
        if (!weight.trained) continue;  // the router's correction bias
        trained[kind] += way == 0 ? whole : product(shape);
        states[kind] += way == 0 ? up(whole, devices) : product(shape);
      }
      for (const StaticItem& item : MemoryModel(model, setup).static_items(0)) {
        EXPECT_EQ(item.weights, expected.at(item.name)) << item.name << ", ep=" << expert;
        EXPECT_EQ(item.gradient_bytes, trained.at(item.name) * 4);
        EXPECT_EQ(item.optimizer_bytes, states.at(item.name) * 12);
      }
    }
  }
  // The largest layer has 32 experts of 3 x 7168 x 2048 per device; its other weights are divided by tp.
  setup.extra.replicated = false;
  setup.parallel = {.tensor = 2, .expert = 8, .data = 16, .context = 2};
  std::int64_t weights = 32 * std::int64_t{3} * 7168 * 2048;
  for (const Weight& weight : model.weights)
    if (weight.layer == 3 && weight.kind != WeightKind::experts) weights += up(weight.numbers(), 2);
  EXPECT_EQ(MemoryModel(model, setup).largest_layer(0), weights);
  EXPECT_EQ(active(model, setup).at("gathered_weights"), 2 * weights * 2);
  EXPECT_EQ(active(model, setup).at("gathered_gradients"), weights * (2 + 4));
  setup.bytes.gradient = 0;
  EXPECT_FALSE(active(model, setup).contains("gathered_gradients"));
  // The output head of a narrow model is larger than a layer.
  const ModelDescription narrow = model_named("qwen3-30b-a3b");
  setup.parallel = {.expert = 64, .data = 64};
  const std::int64_t layer = MemoryModel(narrow, setup).largest_layer(0), head = 151936 * std::int64_t{2048};
  ASSERT_LT(layer, head);
  EXPECT_EQ(active(narrow, setup).at("gathered_weights"), (layer + head) * 2);
}

}  // namespace
}  // namespace evenkeel
