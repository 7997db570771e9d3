// The map of TensorRT-LLM's load balancer in all the ways that YAML is written, and in larger files.
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/placement_format.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

PlacementFile read_trtllm(const std::string& text) {
  return read_placement_as(source_of(text), {.num_ranks = 2});
}

std::string trtllm_refusal(const std::string& text) {
  return message_of<ParseError>([&] { read_trtllm(text); });
}

class TrtllmMap : public testing::TestWithParam<const char*> {};

TEST_P(TrtllmMap, IsTheSameInEveryNotation) {
  const PlacementFile file = read_trtllm(GetParam());
  EXPECT_EQ(file.placement.layers().numbers(), (std::vector<int>{3, 10}));
  EXPECT_EQ(file.layer_updates_per_iter, 2);
  ASSERT_EQ(file.placement.num_layers(), 2);
  for (int layer = 0; layer < 2; ++layer)
    for (int expert = 0; expert < 4; ++expert)
      EXPECT_EQ(file.placement.layer(layer).owner(ExpertId(expert)), RankId(expert / 2 == layer ? 0 : 1));
}

INSTANTIATE_TEST_SUITE_P(
    Notations, TrtllmMap,
    testing::Values(
        "initial_global_assignments:\n  3: [0, 1, 2, 3]\n  10: [2, 3, 0, 1]\nlayer_updates_per_iter: "
        "2\nnum_slots: 4\n",
        "initial_global_assignments:\n  10:\n  - 2\n  - 3\n  - 0\n  - 1\n  3:\n  - 0\n  - 1\n  - 2\n  - 3\n"
        "layer_updates_per_iter: 2\nnum_slots: 4\n",
        "{initial_global_assignments: {3: [0, 1, 2,\n   3], 10: [2, 3,\n  0, 1]}, layer_updates_per_iter: 2, "
        "num_slots: 4}\n",
        "initial_global_assignments: {3: [0, 1, 2, 3], 10: [2, 3, 0, 1]}\nlayer_updates_per_iter: "
        "2\nnum_slots: 4",
        "{\"num_slots\": 4, \"layer_updates_per_iter\": 2,\n"
        " \"initial_global_assignments\": {\"10\": [2, 3, 0, 1], \"3\": [0, 1, 2, 3]}}",
        "# options\nbackend: pytorch\nkv_cache_config:\n  dtype: fp8\n  \"free_gpu_memory_fraction\": 0.8\n"
        "cuda_graph_config: {batch_sizes: [1, 2], enable_padding: true}\nmoe_config:\n  backend: WIDEEP\n"
        "  load_balancer:\n    num_slots: 4\n    layer_updates_per_iter: 2\n    initial_global_assignments:\n"
        "      3: [0, 1, 2, 3]\n      10: [2, 3, 0, 1]\nmax_batch_size: 8\n",
        "{\"backend\": \"pytorch\", \"moe_load_balancer\": {\"num_slots\": 4, \"layer_updates_per_iter\": 2, "
        "\"initial_global_assignments\": {\"3\": [0, 1, 2, 3], \"10\": [2, 3, 0, 1]}}}",
        "max_batch_size: 8\nmoe_load_balancer: {num_slots: 4, layer_updates_per_iter: 2, "
        "initial_global_assignments: "
        "{3: [0, 1, 2, 3], 10: [2, 3, 0, 1]}}\n",
        "%YAML 1.1\n---\ninitial_global_assignments: !!map\n  3: [0, 1, 2, 3]\n  10: [2, 3, 0, 1]\n"
        "'layer_updates_per_iter' : 2\n\"num_slots\": 4\n...\n"));

TEST(TrtllmYaml, HasListsThatStandForOthers) {
  const PlacementFile file = read_trtllm(
      "initial_global_assignments:\n  3: &id001\n  - 0\n  - 1\n  - 2\n  - 3\n  4: *id001\n  5: &id002 [2, 3, "
      "0, 1]\n"
      "  6: *id002\nnum_slots: 4\n");
  EXPECT_EQ(file.placement.layers().numbers(), (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(file.placement.layer(1).owner(ExpertId(0)), RankId(0));
  EXPECT_EQ(file.placement.layer(3).owner(ExpertId(0)), RankId(1));
}

TEST(TrtllmYaml, OfAFewListsCannotTakeMemoryForMany) {
  std::string text = "num_slots: 10000\ninitial_global_assignments:\n  0: &a [0";
  for (int i = 1; i < 10000; ++i) text += ",0";
  text += "]\n";
  for (int layer = 1; layer < 5000; ++layer) text += "  " + std::to_string(layer) + ": *a\n";
  EXPECT_NE(trtllm_refusal(text).find("takes more memory than a file of this size may ask for"),
            std::string::npos);
}

TEST(TrtllmYaml, ThatWouldBeReadAsOtherNumbersIsRefused) {
  const auto with_row = [](const std::string& row) {
    return trtllm_refusal("num_slots: 4\ninitial_global_assignments:\n  3: " + row + "\n");
  };
  EXPECT_EQ(with_row("[0, 1 2, 3]"), "f: line 3: '1 2' is not an expert");
  EXPECT_EQ(with_row("[0 1 2 3]"), "f: line 3: '0 1 2 3' is not an expert");
  EXPECT_EQ(with_row("[0, 1, 2, 010]"), "f: line 3: '010' is not an expert");
  EXPECT_EQ(with_row("[0, 1, 2, 0x3]"), "f: line 3: '0x3' is not an expert");
  EXPECT_EQ(with_row("[0, 1, 2, '3']"), "f: line 3: '3' is not an expert");
  EXPECT_EQ(with_row("[0, 1, 2, 3.0]"), "f: line 3: '3.0' is not an expert");
  EXPECT_EQ(with_row("[0, 1, , 3]").substr(0, 18), "f: line 3: is not ");
  EXPECT_EQ(with_row("[0, 1, [2], 3]"), "f: line 3: a list is not an expert");
  EXPECT_EQ(with_row("0"), "f: line 3: '0' is not a list of experts");
  EXPECT_EQ(with_row("*none"), "f: line 3: is an alias of nothing before it");
}

TEST(TrtllmYaml, WithAKeyTwiceOrUnknownIsRefused) {
  const std::string map = "  initial_global_assignments: {0: [0, 1]}\n";
  EXPECT_EQ(trtllm_refusal("a:\n" + map + "  num_slots: 2\n  num_slots: 2\n"),
            "f: line 4: num_slots is given twice");
  EXPECT_EQ(trtllm_refusal("a:\n" + map + map), "f: line 3: initial_global_assignments is given twice");
  EXPECT_EQ(trtllm_refusal("a:\n" + map + "  slots: 2\n"),
            "f: line 3: 'slots' is no key of a TensorRT-LLM load balancer");
  EXPECT_EQ(trtllm_refusal("initial_global_assignments: {0: [0, 1], 0: [1, 0]}\nnum_slots: 2\n"),
            "f: line 1: layer 0 is given twice");
  EXPECT_EQ(trtllm_refusal("a:\n" + map + "b:\n" + map),
            "f: line 4: is a second map with initial_global_assignments; the first is in line 2");
  EXPECT_EQ(trtllm_refusal("num_slots: 2\n---\n" + map.substr(2)),
            "f: line 2: begins a second document; one is read");
}

TEST(TrtllmYaml, ThatIsNestedWithoutEndIsRefused) {
  EXPECT_EQ(trtllm_refusal("num_slots: " + std::string(1000, '[')), "f: line 1: nested deeper than 16");
  EXPECT_EQ(trtllm_refusal("num_slots: &a [*a]\n"), "f: line 1: num_slots: a list is not a whole number");
}

}  // namespace
}  // namespace evenkeel
