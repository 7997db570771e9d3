// The map of TensorRT-LLM's load balancer in all styles of YAML, alone and within larger files.
#include "evenkeel/io/placement_format.h"
#include "tests/io/support.h"

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
        "initial_global_assignments: {3: [0, 1, 2, 3], 10: [2, 3, 0, 1]}}\n",
        "# made by hand\n---\nnum_slots: 4\nlayer_updates_per_iter: 2\ninitial_global_assignments:\n"
        "  3: [0, 1,\n      2, 3]  # the hot ones first\n  10:\n  - 2\n  - 3\n  - 0\n  - 1\n",
        // With a byte-order mark and CRLF line ends, as Windows editors save it.
        "\xef\xbb\xbfnum_slots: 4\r\nlayer_updates_per_iter: 2\r\n\r\ninitial_global_assignments:\r\n"
        "  3: [0, 1, 2,\r\n  3]\r\n  10:\r\n  - 2\r\n  - 3\r\n  - 0\r\n  - 1\r\n",
        "%YAML 1.1\n---\ninitial_global_assignments: !!map\n  3: [0, 1, 2, 3]\n  10: [2, 3, 0, 1]\n"
        "'layer_updates_per_iter' : 2\n\"num_slots\": 4\n...\n"));

TEST(TrtllmYaml, ThatSaysItsRanksIsForThoseAlone) {
  const auto source = source_of("ep_size: 2\nnum_slots: 4\ninitial_global_assignments:\n  3: [0, 1, 2, 3]\n");
  EXPECT_EQ(read_placement_as(source).placement.num_ranks(), 2);
  EXPECT_EQ(num_ranks_in(source), 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { read_placement_as(source, {.num_ranks = 4}); }),
            "ranks: 4, but f is for 2 ranks; allowed: 2, or a placement for 4");
}

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
  EXPECT_NE(trtllm_refusal(text).find(
                "needs far more memory than the size of the file allows; is the file damaged?"),
            std::string::npos);
}

TEST(TrtllmYaml, ThatWouldBeReadAsOtherNumbersIsRefused) {
  const std::pair<const char*, const char*> rows[] = {
      {"[0, 1 2, 3]", "'1 2' is not an expert number"},
      {"[0 1 2 3]", "'0 1 2 3' is not an expert number"},
      {"[0, 1, 2, 010]", "'010' is not an expert number"},
      {"[0, 1, 2, 0x3]", "'0x3' is not an expert number"},
      {"[0, 1, 2, '3']", "'3' is not an expert number"},
      {"[0, 1, 2, 3.0]", "'3.0' is not an expert number"},
      {"[0, 1, 1x, 3]", "'1x' is not an expert number"},
      {"[0, 1, [2], 3]", "a list is not an expert number"},
      {"0", "'0' is not a list of experts"},
      {"*none", "is an alias without an anchor before it"},
  };
  for (const auto& [row, message] : rows)
    EXPECT_EQ(trtllm_refusal("num_slots: 4\ninitial_global_assignments:\n  3: " + std::string(row) + "\n"),
              std::string("f: line 3: ") + message);
}

TEST(TrtllmYaml, ThatIsDamagedIsRefusedWithItsPlace) {
  const std::string map = "  initial_global_assignments: {0: [0, 1]}\n";
  const std::pair<std::string, const char*> damaged[] = {
      {"num_slots: 4\n", "is YAML, but has no map with the key initial_global_assignments"},
      {"num_slots: 4\ninitial_global_assignments: {}\n", "initial_global_assignments: has no layer"},
      {"initial_global_assignments:\n  0: [0, 1]\n", "num_slots: is missing"},
      {"num_slots: 4\ninitial_global_assignments:\n  0: [0, 1]\n",
       "initial_global_assignments.0: has 2 slots, but num_slots is 4"},
      {"num_slots: 4\ninitial_global_assignments:\n  0: [0, 1,\n",
       "line 4: is not YAML: did not find expected node content while parsing a flow node that begins in "
       "line 4"},
      {"num_slots: 4\ninitial_global_assignments:\n  a: [0, 1]\n",
       "line 3: 'a' is not the number of a layer"},
      {"num_slots: 4\ninitial_global_assignments:\n  1: [0]\n  1: [0]\n", "line 4: layer 1 is given twice"},
      {"num_slots: four\n" + map.substr(2), "line 1: num_slots: 'four' is not a whole number"},
      {"ep_size: 0\n" + map.substr(2), "line 1: ep_size is 0; allowed: 1..65536"},
      {"a:\n" + map + "  num_slots: 2\n  num_slots: 2\n", "line 4: num_slots is given twice"},
      {"a:\n" + map + map, "line 3: initial_global_assignments is given twice"},
      {"a:\n" + map + "  slots: 2\n", "line 3: 'slots' is not a key of a TensorRT-LLM load balancer"},
      {"initial_global_assignments: {0: [0, 1], 0: [1, 0]}\nnum_slots: 2\n",
       "line 1: layer 0 is given twice"},
      {"a:\n" + map + "b:\n" + map,
       "line 4: is a second map with initial_global_assignments; the first is in line 2; keep one of the "
       "two"},
      {"num_slots: 2\n---\n" + map.substr(2), "line 2: begins a second document; only one is allowed"},
      {"num_slots: " + std::string(1000, '['), "line 1: is nested deeper than 16 levels"},
      {"num_slots: &a [*a]\n" + map.substr(2), "line 1: num_slots: a list is not a whole number"},
  };
  for (const auto& [text, message] : damaged) EXPECT_EQ(trtllm_refusal(text), std::string("f: ") + message);
}

}  // namespace
}  // namespace evenkeel
