// The memory model compared with independent sums, and its extra terms one by one.
#include "evenkeel/training_memory/memory_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/names.h"
#include "tests/routing/message.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::map<std::string, std::int64_t> by_name(const std::vector<ActiveItem>& items) {
  std::map<std::string, std::int64_t> bytes;
  for (const ActiveItem& item : items) bytes[std::string(item.name)] += item.bytes;
  return bytes;
}

std::int64_t active_total(const MemoryModel& memory, int stage, std::int64_t received,
                          std::int64_t chunks = 1) {
  return total_bytes(memory.active_items(stage, received, chunks));
}

std::int64_t weights_of(const std::vector<StaticItem>& items) {
  std::int64_t sum = 0;
  for (const StaticItem& item : items) sum += item.weights;
  return sum;
}

TEST(MemoryModel, ActiveBytesAreEquationTwoForRandomSetups) {
  const ModelDescription model = model_named("qwen3-30b-a3b");
  std::mt19937_64 random(5);
  const auto draw = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  for (int trial = 0; trial < 300; ++trial) {
    MemorySetup setup;
    setup.parallel = with_least_data({.tensor = draw(8),
                                      .pipeline = draw(6),
                                      .expert = draw(16),
                                      .virtual_stages = draw(4),
                                      .context = draw(4),
                                      .expert_tensor = draw(4)});
    setup.sequence = draw(20000);
    setup.micro_batch = draw(4);
    setup.bytes.activation = draw(4);
    setup.full_recompute = trial % 2 != 0;
    const MemoryModel memory(model, setup);
    const std::int64_t received = draw(300000), chunks = draw(8);
    for (int stage = 0; stage < memory.num_stages(); ++stage) {
      const Parallelism& at = setup.parallel;
      const std::int64_t copies =
          setup.full_recompute ? 1 : at.virtual_stages * at.pipeline + at.pipeline - 2 * stage - 1;
      const std::int64_t numbers =
          setup.sequence * (5 * 2048 + 32 * 128 + 2 * 4 * 128 + 128) +
          ((received + chunks - 1) / chunks) * (2 * 2048 + 2 * 768 / at.expert_tensor);
      const double expected = static_cast<double>(copies) / static_cast<double>(at.tensor * at.context) *
                              static_cast<double>(setup.bytes.activation * setup.micro_batch * numbers);
      // Each of the twelve items is rounded up separately.
      const auto bytes = static_cast<double>(active_total(memory, stage, received, chunks));
      EXPECT_GE(bytes, expected - 1e-3) << trial;
      EXPECT_LE(bytes, expected + 12) << trial;
    }
  }
}

TEST(MemoryModel, MostReceivedIsTheLastRowCountThatFitsWhateverTheTerms) {
  const ModelDescription model = model_named("deepseek-v3");
  for (int trial = 0; trial < 64; ++trial) {
    MemorySetup setup = memfine_setup();
    setup.parallel.tensor = 1 + trial % 3;
    setup.parallel.context = 1 + trial % 2;
    setup.extra.every_layer = (trial & 4) != 0;
    setup.extra.shared_experts = (trial & 8) != 0;
    setup.extra.communication_buffers = (trial & 16) != 0;
    setup.extra.allocation_granule = (trial & 32) != 0 ? 2 << 20 : 0;
    const MemoryModel memory(model, setup);
    EXPECT_EQ(memory.most_received(3, 1'000'000, trial % 2 * 2'000'000), 0);  // the fixed part does not fit
    const std::int64_t most = memory.most_received(3, 60'000'000'000, 20'000'000'000);
    ASSERT_GT(most, 0);
    EXPECT_LE(active_total(memory, 3, most), 40'000'000'000) << trial;
    if (setup.extra.allocation_granule == 0) {  // each item is rounded up to a whole byte
      EXPECT_GE(active_total(memory, 3, most + 1) + 15, 40'000'000'000) << trial;
    }
  }
}

// If a stage has both kinds of layer, the larger layer decides how many rows fit; none if the dense layer
// does not fit.
TEST(MemoryModel, MostReceivedAgreesWithTheTensorsKeptOfBothKindsOfLayer) {
  for (int trial = 0; trial < 4; ++trial) {
    MemorySetup setup = memfine_setup();
    setup.extra.kept_tensors = true;
    setup.extra.layer_gradients = (trial & 1) != 0;
    setup.full_recompute = (trial & 2) != 0;
    const MemoryModel memory(model_named("deepseek-v3"), setup);
    const std::int64_t fixed = active_total(memory, 0, 0);
    EXPECT_EQ(memory.most_received(0, fixed - 1, 0, 0), 0) << trial;
    const std::int64_t most = memory.most_received(0, 4 * fixed, 0, 0);
    ASSERT_GT(most, 0) << trial;
    EXPECT_LE(active_total(memory, 0, most), 4 * fixed) << trial;
    EXPECT_GT(active_total(memory, 0, most + most / 100), 4 * fixed) << trial;
  }
}

TEST(MemoryModel, WeightsOfAllStagesAndExpertRanksTogetherAreTheModels) {
  for (const char* name : {"deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b", "mixtral-8x7b", "kimi-k2"}) {
    const ModelDescription model = model_named(name);
    for (const Parallelism& parallel :
         {Parallelism{}, with_least_data({.pipeline = 4, .expert = 8}),
          with_least_data({.pipeline = 3, .expert = 2, .virtual_stages = 5, .expert_tensor = 2})}) {
      const MemoryModel memory(model, {.parallel = parallel});
      std::int64_t sum = 0;
      for (int stage = 0; stage < memory.num_stages(); ++stage)
        for (const StaticItem& item : memory.static_items(stage)) {
          sum += item.weights * (item.name == "experts" ? parallel.expert_parts() : 1);
          EXPECT_EQ(item.weight_bytes, 2 * item.weights);
          EXPECT_EQ(item.optimizer_bytes, 3 * item.gradient_bytes);
        }
      // An expert's output bias is on every device that shares the expert.
      for (const Weight& weight : model.weights)
        if (weight.kind == WeightKind::experts && weight.axis == uncut)
          sum -= (parallel.expert_tensor - 1) * weight.numbers();
      EXPECT_EQ(sum, model.parameters()) << name;
    }
  }
}

TEST(MemoryModel, ALayerThatPredictsAFurtherTokenIsAnotherOfTheLastStage) {
  const ModelDescription model = model_named("deepseek-v3");
  ASSERT_EQ(model.prediction_layers, std::vector{true});
  std::int64_t layer = 2 * model.hidden * model.hidden + 3 * model.hidden;
  for (const Weight& weight : model.weights) layer += weight.layer == 60 ? weight.numbers() : 0;
  MemorySetup setup;
  for (const std::int64_t stages : {1, 4}) {
    setup.parallel.pipeline = stages;
    const auto last = [&](bool predicts) {
      setup.extra.prediction = predicts;
      const MemoryModel memory(model, setup);
      const int stage = memory.num_stages() - 1;
      return std::pair(memory.layers(stage).back(), weights_of(memory.static_items(stage)));
    };
    const std::int64_t table = stages > 1 ? model.vocabulary * model.hidden : 0;
    EXPECT_EQ(last(false).first, 60);
    EXPECT_EQ(last(true), std::pair(std::int64_t{61}, last(false).second + layer + table));
  }
}

// Deals every part of every expert to the devices of a stage, one by one, and sums what each device then
// holds.
TEST(MemoryModel, TheDevicesOfAStageTogetherHoldEveryExpertOrTheLayoutIsRefused) {
  const ModelDescription model = model_named("qwen3-30b-a3b");
  const std::int64_t all_experts = model.parameters(WeightKind::experts);
  std::mt19937_64 random(29);
  const auto draw = [&](int most) { return std::int64_t{1} << (random() % static_cast<unsigned>(most)); };
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    MemorySetup setup;
    setup.parallel = {.tensor = draw(4),
                      .expert = draw(6),
                      .data = 1 + static_cast<std::int64_t>(random() % 12),
                      .context = draw(3),
                      .expert_tensor = draw(4)};
    const Parallelism& at = setup.parallel;
    const std::int64_t devices = at.tensor * at.context * at.data;
    // (group of experts, slice) -> number of devices that hold it.
    std::map<std::pair<std::int64_t, std::int64_t>, int> holders;
    for (std::int64_t device = 0; device < devices; ++device)
      ++holders[{device / at.expert_tensor % at.expert, device % at.expert_tensor}];
    const bool all_held = std::ssize(holders) == at.expert * at.expert_tensor;
    const bool alike = std::ranges::all_of(
        holders, [&](const auto& held) { return held.second == holders.begin()->second; });
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    if (!all_held || !alike) {
      EXPECT_THROW(MemoryModel(model, setup), InvalidArgument);
      ++refused;
      continue;
    }
    setup.extra.sharded_optimizer = true;
    const auto items = MemoryModel(model, setup).static_items(0);
    const StaticItem& experts = *std::ranges::find(items, "experts", &StaticItem::name);
    EXPECT_EQ(experts.weights * devices, all_experts * holders.begin()->second);
    EXPECT_GE(experts.optimizer_bytes * devices, 12 * all_experts);
    EXPECT_LT(experts.optimizer_bytes * devices,
              12 * (all_experts + 2 * 48 * devices));  // rounding per tensor
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 350);
}

TEST(MemoryModel, DevicesThatShareAnExpertAllReceiveItsRowsAndKeepASliceOfItsWidth) {
  MemorySetup setup{.parallel = {.tensor = 4, .expert = 2, .data = 2}};
  const MemoryModel whole(model_named("qwen3-30b-a3b"), setup);
  setup.parallel.expert_tensor = 4;
  setup.extra.borrowed_experts = 1;
  const MemoryModel sliced(whole.model(), setup);
  EXPECT_EQ(sliced.even_received(), 4 * whole.even_received());
  EXPECT_EQ(sliced.worst_received(), 4 * whole.worst_received());
  auto expected = by_name(whole.active_items(0, whole.even_received(), 1));
  // Rows have full width before and after the products, and there are four times as many.
  expected.at("expert_input") *= 4;
  expected.at("expert_output") *= 4;
  expected["borrowed_experts"] = 6LL * 3 * 2048 * 768 / 4;
  EXPECT_EQ(by_name(sliced.active_items(0, sliced.even_received(), 1)), expected);
}

// The weights of the paper's setup, counted by hand: four stages, and per device 8 routed experts and one
// shared expert.
TEST(MemoryModel, OfThePapersModelTheLargestStageHoldsTheWeightsThatWereCountedByHand) {
  for (const auto& [name, counted] :
       {std::pair("memfine-model-1", 3267.9e6), {"memfine-model-2", 2097.3e6}}) {
    const MemoryModel memory(model_named(name), memfine_setup());
    std::int64_t most = 0;
    for (int stage = 0; stage < 4; ++stage) most = std::max(most, weights_of(memory.static_items(stage)));
    EXPECT_NEAR(static_cast<double>(most), counted, 0.1e6);
  }
}

TEST(MemoryModel, PiecesOfThePipelineAreThoseThatAreGiven) {
  MemorySetup setup{.parallel = {.pipeline = 2, .virtual_stages = 2}};
  setup.extra.prediction = true;
  const ModelDescription model = model_named("deepseek-v3");
  const auto make = [&](const char* text) {
    setup.pieces = parse_pipeline("--pipeline-layout", text, 1);
    return MemoryModel(model, setup);
  };
  const MemoryModel memory = make("Et*3|t*30|t*28m|L");
  EXPECT_THAT(memory.layers(0), AllOf(testing::SizeIs(3 + 28 + 1), testing::Contains(61)));
  EXPECT_THAT(memory.layers(1), AllOf(testing::SizeIs(30), testing::Each(testing::Lt(33))));
  EXPECT_TRUE(memory.has_embedding(0) && memory.has_head(1) && !memory.has_head(0));
  EXPECT_EQ(memory.piece_layers(0), 29);
  EXPECT_EQ(memory.piece_layers(0, MemoryModel::Part::dense), 3);
  EXPECT_EQ(memory.prediction_layers(0), 1);
  for (const char* text :
       {"30,31", "30,31,0,1", "Et*61|t|m|L", "Et*61|||mL|", "Et*61|||L", "t*61|||mL", "Et*61||L|mL"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { make(text); }),
                AllOf(HasSubstr("pipeline_layout: has "),
                      HasSubstr("allowed: pp x vp = 4 pieces with 61 layers, 1 prediction layers (any number "
                                "if the term prediction is not counted), one embedding and one head")))
        << text;
}

TEST(ParsePipeline, TakesLayersOfEachPieceOrMegatronsLetters) {
  const auto parse = [](const char* text) { return parse_pipeline("--pipeline-layout", text, 2); };
  using Pieces = std::vector<PipelinePiece>;
  EXPECT_EQ(parse("3,0,4"), (Pieces{{3, 0, true, false}, {0, 0, false, false}, {4, 2, false, true}}));
  EXPECT_EQ(parse("12"), (Pieces{{12, 2, true, true}}));
  EXPECT_EQ(parse("E, t*3 | (t t|)*2 m|L"),
            (Pieces{{3, 0, true, false}, {2}, {2}, {0, 1, false, false}, {0, 0, false, true}}));
  EXPECT_EQ(parse("E|((t|)*2tt|)*2mL"),
            (Pieces{{0, 0, true, false}, {1}, {1}, {2}, {1}, {1}, {2}, {0, 1, false, true}}));
  for (const auto& [text, part] :
       {std::pair("", "--pipeline-layout: "),
        {"3,,4", "--pipeline-layout: "},
        {"3,-1", "-1"},
        {"Et)|L", "'Et)|L' has a ) without a ("},
        {"E(t|L", "has a ( without a )"},
        {"Ex|L", "has an unknown symbol, x; allowed: layers of each piece (3,4,4,3), or"},
        {"*3t|L", "has a * that repeats nothing, or makes more than 65536 symbols"},
        {"E(t*60000)*60000|L", "has a * that repeats nothing, or makes more than 65536 symbols"},
        {"Et*0|L", "0"},
        {"Et*|L", "--pipeline-layout: "}})
    EXPECT_THAT(message_of<InvalidArgument>([&] { parse(text); }), HasSubstr(part)) << text;
}

TEST(MemoryModel, ATiedHeadIsASecondTableOnlyOnAnotherDevice) {
  for (const int stages : {1, 2}) {
    const MemoryModel memory(model_named("gemma-4-26b-a4b"), {.parallel = {.pipeline = stages}});
    int tables = 0;
    for (int stage = 0; stage < stages; ++stage)
      for (const StaticItem& item : memory.static_items(stage))
        tables += item.name == "embedding" || item.name == "head" ? 1 : 0;
    EXPECT_EQ(tables, stages);
  }
}

TEST(MemoryModel, ExtraTermsAddWhatTheySayAndNothingElse) {
  MemorySetup setup = memfine_setup();
  const ModelDescription model = model_named("memfine-model-1");
  const auto names = [&](const ExtraTerms& extra, int stage) {
    setup.extra = extra;
    return by_name(MemoryModel(model, setup).active_items(stage, 50000, 2));
  };
  const auto paper = names({}, 3);
  EXPECT_EQ(paper.size(), 12U);
  const auto added = [&](const ExtraTerms& extra, int stage = 3) {
    auto with = names(extra, stage);
    for (const auto& [name, bytes] : names({}, stage)) {
      EXPECT_EQ(with.at(name), bytes) << name;
      with.erase(name);
    }
    return with;
  };
  using Bytes = std::map<std::string, std::int64_t>;
  EXPECT_EQ(added({.shared_experts = true}), (Bytes{{"shared_experts", 2 * 4096 * 2 * 2048}}));
  EXPECT_EQ(added({.communication_buffers = true}),
            (Bytes{{"dispatch_buffer", 2 * 2048 * 8 * 7168}, {"combine_buffer", 2 * 2048 * 8 * 7168}}));
  EXPECT_EQ(added({.borrowed_experts = 3}), (Bytes{{"borrowed_experts", 3 * 6 * 44'040'192LL}}));
  EXPECT_EQ(added({.logits = true}), (Bytes{{"logits", 6LL * 4096 * 129280}}));
  EXPECT_EQ(added({.logits = true, .fused_cross_entropy = true}), (Bytes{{"logits", 2LL * 4096 * 129280}}));
  EXPECT_EQ(added({.logits = true}, 2), Bytes{});
  // Stage 3 of 4 has one micro-batch in flight, stage 0 has four; each stage has four layers.
  EXPECT_EQ(added({.every_layer = true}), (Bytes{{"layer_inputs", 4LL * 2 * 4096 * 7168}}));
  EXPECT_EQ(added({.every_layer = true}, 0), (Bytes{{"layer_inputs", 4LL * 4 * 2 * 4096 * 7168}}));
  const std::int64_t once = total_bytes(MemoryModel(model, memfine_setup()).active_items(1, 10000, 1));
  setup.extra = {.every_layer = true};
  setup.full_recompute = false;
  EXPECT_EQ(active_total(MemoryModel(model, setup), 1, 10000), 3 * 4 * once);
}

TEST(MemoryModel, RowsAreAsWideAsExpertsTakeThem) {
  MemorySetup setup = memfine_setup();
  setup.extra.communication_buffers = true;
  ModelDescription model = model_named("memfine-model-1");
  auto expected = by_name(MemoryModel(model, setup).active_items(3, 50000, 2));
  for (const char* name : {"expert_input", "expert_output", "dispatch_buffer", "combine_buffer"})
    expected.at(name) /= 4;
  model.experts.latent = model.hidden / 4;
  EXPECT_EQ(by_name(MemoryModel(model, setup).active_items(3, 50000, 2)), expected);
}

TEST(MemoryModel, RoundingNeverTakesAwayAndAddsLessThanAGranuleATensor) {
  MemorySetup setup = memfine_setup();
  const MemoryModel exact(model_named("memfine-model-1"), setup);
  setup.extra.allocation_granule = 2 << 20;
  const MemoryModel rounded(model_named("memfine-model-1"), setup);
  for (std::int64_t received : {0, 1, 777, 123456}) {
    const auto before = exact.active_items(2, received, 1);
    const auto after = rounded.active_items(2, received, 1);
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_GE(after[i].bytes, before[i].bytes);
      EXPECT_LT(after[i].bytes, before[i].bytes + (2 << 20));
      EXPECT_EQ(after[i].bytes % (2 << 20), 0);
    }
  }
}

TEST(MemoryModel, ADenseStageKeepsNoRowsOfExperts) {
  const MemoryModel memory(model_named("memfine-model-1"), {.parallel = {.pipeline = 16}});
  EXPECT_FALSE(memory.has_experts(0));
  EXPECT_TRUE(memory.has_experts(3));
  EXPECT_EQ(active_total(memory, 0, 1 << 20), active_total(memory, 0, 0));
  EXPECT_EQ(memory.most_received(0, 64'000'000'000, 0), most_rows);
  EXPECT_EQ(by_name(memory.active_items(0, 0, 1)).at("dense_hidden"), 2LL * 4096 * 2 * 18432);
}

TEST(MemoryModel, TheWorstRoutingSendsEveryTokenToOneDevice) {
  const MemoryModel memory(model_named("memfine-model-1"), memfine_setup());
  EXPECT_EQ(memory.local_experts(), 8);
  EXPECT_EQ(memory.worst_received(), 32 * 4096 * 8);
  EXPECT_EQ(memory.even_received(), 4096 * 8);
  const MemoryModel one_expert(memory.model(), {.parallel = {.expert = 256, .data = 256}});
  EXPECT_EQ(one_expert.worst_received(), 256 * 4096);
}

TEST(MemoryModel, SetupsThatCannotBeAreRefusedWithWhatCan) {
  const auto refused = [](const MemorySetup& setup, const char* message) {
    const auto make = [&] { MemoryModel(model_named("memfine-model-1"), setup); };
    EXPECT_THAT(message_of<InvalidArgument>(make), HasSubstr(message));
  };
  refused({.parallel = {.tensor = 0}}, "parallel: tp=0; allowed: tp in 1..1048576");
  refused({.parallel = {.expert_tensor = (1 << 20) + 1}},
          "parallel: etp=1048577; allowed: etp in 1..1048576");
  refused(
      {.parallel = {.tensor = 1 << 20, .data = 1 << 20, .context = 2}},
      "tp=1048576 x cp=2 x dp=1048576 x pp=1 are too many devices; allowed: at most 1099511627776 devices");
  refused({.parallel = {.pipeline = 9, .virtual_stages = 2}},
          "pp=9 with vp=2 makes more stages than the model has layers, 16");
  refused({.parallel = {.expert = 257}}, "ep=257, but the model has 256 experts; allowed: 1..256");
  refused({.sequence = 0}, "sequence: 0; allowed: 1 or more");
  refused({.selective = {.moe = true}},
          "recompute: parts of a layer cannot be combined with full recomputation");
  refused({.parallel = {.expert_tensor = 3}}, "etp=3 does not divide the width of an expert, 2048");
  refused(
      {.parallel = {.expert = 8, .data = 4}},
      "tp=1 x cp=1 x dp=4 makes 4 devices a pipeline stage, not a multiple of ep=8 x etp=1 = 8, so that they "
      "cannot hold whole copies of the experts; allowed: dp=8 or a multiple, or ep x etp that divides 4");
  refused(
      {.parallel = {.tensor = 2, .expert = 4, .data = 3, .context = 2, .expert_tensor = 2}},
      "makes 12 devices a pipeline stage, not a multiple of ep=4 x etp=2 = 8, so that they cannot hold whole "
      "copies of the experts; allowed: dp=2 or a multiple, or ep x etp that divides 12");
}

TEST(MemoryModel, AbsurdShapesEndAtTheLargestNumberRatherThanOverflow) {
  const MemoryModel memory(model_named("deepseek-v3"),
                           {.sequence = std::int64_t{1} << 40, .micro_batch = std::int64_t{1} << 30});
  EXPECT_EQ(active_total(memory, 0, most_rows), most_bytes);
}

}  // namespace
}  // namespace evenkeel
