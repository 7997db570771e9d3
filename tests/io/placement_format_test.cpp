#include "evenkeel/io/placement_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array foreign = {PlacementFormat::sglang, PlacementFormat::vllm, PlacementFormat::vllm_ascend,
                                PlacementFormat::trtllm};

LayerPlacement layer(const std::vector<std::vector<int>>& homes, int ranks) {
  return LayerPlacement(homes, ranks);
}

// Two layers of 4 experts on 2 ranks; layer 1 has copies of experts 0 and 3.
PlacementFile with_copies() {
  return {.placement =
              Placement({layer({{0, 1}, {1}, {0}, {0, 1}}, 2), layer({{1, 0}, {0}, {1}, {1, 0}}, 2)})};
}

// Every expert in each layer on a rank drawn by seed, equally many on each; then copies where there is space.
PlacementFile random_placement(int layers, int experts, int ranks, int on_rank, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<LayerPlacement> made;
  for (int l = 0; l < layers; ++l) {
    std::vector<std::vector<int>> homes(static_cast<std::size_t>(experts));
    std::vector<std::size_t> order(homes.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i = 0; i < order.size(); ++i) homes[order[i]] = {static_cast<int>(i) % ranks};
    for (int rank = 0; rank < ranks; ++rank) {
      int copies = on_rank - experts / ranks;
      for (std::size_t e : order)
        if (copies > 0 && homes[e].front() != rank) {
          homes[e].push_back(rank);
          --copies;
        }
    }
    for (auto& of_expert : homes) std::sort(of_expert.begin(), of_expert.end());
    made.emplace_back(homes, ranks);
  }
  return {.placement = Placement(std::move(made))};
}

void expect_same(const Placement& a, const Placement& b) {
  ASSERT_EQ(a.num_layers(), b.num_layers());
  for (int l = 0; l < a.num_layers(); ++l) EXPECT_EQ(a.layer(l), b.layer(l)) << "layer " << l;
}

class EveryFormat : public testing::TestWithParam<PlacementFormat> {};
class ForeignFormat : public testing::TestWithParam<PlacementFormat> {};

TEST_P(EveryFormat, GivesBackWhatWasWritten) {
  TempFolder folder;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 5);
    const int experts = ranks * (1 + static_cast<int>(seed % 4));
    const int on_rank = std::min(experts, experts / ranks + static_cast<int>(seed % 3));
    const PlacementFile file = random_placement(3, experts, ranks, on_rank, seed);
    const std::string path = folder / "p.json";
    write_placement_as(GetParam(), file, {.layers = {{0, 1, 2}}}, path);
    SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << read_text(path));
    EXPECT_EQ(detect_placement_format(path), GetParam());
    const PlacementFile again = read_placement_as(path, {.num_ranks = ranks});
    expect_same(again.placement, file.placement);
  }
}

TEST_P(ForeignFormat, RefusesRanksOfUnequalSizesAndLeavesNoFile) {
  TempFolder folder;
  const auto refusal = [&](Placement placement) {
    return message_of<Unsupported>(
        [&] { write_placement_as(GetParam(), {.placement = std::move(placement)}, {}, folder / "p.json"); });
  };
  EXPECT_THAT(
      refusal(Placement({layer({{0}, {1}, {1}}, 2)})),
      HasSubstr("gives every rank equally many physical experts, but in layer 0 rank 0 has 1 and rank "
                "1 has 2; place with 1 redundant expert, which makes it even"));
  EXPECT_THAT(refusal(Placement({layer({{0}, {1}}, 2), layer({{0, 1}, {1, 0}}, 2)})),
              HasSubstr("has equally many physical experts in every layer, but layer 0 has 2 and layer 1 has "
                        "4; place with more moves, or anew"));
  // Copies are missing that were asked for: to ask for as many is no advice.
  EXPECT_THAT(refusal(Placement({layer({{0}, {1}, {1}}, 2), layer({{0, 1}, {1}, {0}}, 2)})),
              HasSubstr("but layer 0 has 3 and layer 1 has 4; place with more moves, or anew"));
  EXPECT_TRUE(folder.names().empty());
}

std::string format_name(const testing::TestParamInfo<PlacementFormat>& format) {
  std::string name(name_of(format.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, ForeignFormat, testing::ValuesIn(foreign), format_name);
INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::Values(PlacementFormat::evenkeel, PlacementFormat::sglang,
                                         PlacementFormat::vllm, PlacementFormat::vllm_ascend,
                                         PlacementFormat::trtllm),
                         format_name);

TEST(PlacementFormats, AreWrittenAsTheirServersLoadThem) {
  const struct {
    PlacementFormat format;
    PlacementFormatOptions options;
    const char* text;
  } all[] = {
      // One key, and a row for every hidden layer.
      {PlacementFormat::sglang,
       {.layers = {{1, 3}}, .num_hidden_layers = 5},
       "{\"physical_to_logical_map\": [\n  [0, 1, 2, 3, 0, 1],\n  [0, 2, 3, 0, 1, 3],\n"
       "  [0, 1, 2, 3, 0, 1],\n  [0, 1, 3, 0, 2, 3],\n  [0, 1, 2, 3, 0, 1]\n]}\n"},
      // One line that counts MoE layers only.
      {PlacementFormat::vllm,
       {.layers = {{1, 3}}},
       R"({"record_type":"eplb_initial_mapping","version":1,"num_redundant_experts":2,"num_slots":6,)"
       R"("initial_global_assignments":{"0":[0,2,3,0,1,3],"1":[0,1,3,0,2,3]}})"
       "\n"},
      {PlacementFormat::vllm_ascend,
       {},
       R"({"moe_layer_count":2,"layer_list":[{"layer_id":0,"device_count":2,"device_list":[)"
       R"({"device_id":0,"device_expert":[0,2,3]},{"device_id":1,"device_expert":[0,1,3]}]},)"
       R"({"layer_id":1,"device_count":2,"device_list":[)"
       R"({"device_id":0,"device_expert":[0,1,3]},{"device_id":1,"device_expert":[0,2,3]}]}]})"
       "\n"},
      {PlacementFormat::trtllm,
       {.layers = {{3, 4}}, .layer_updates_per_iter = 2},
       "initial_global_assignments:\n"
       "  3: [0, 2, 3, 0, 1, 3]\n"
       "  4: [0, 1, 3, 0, 2, 3]\n"
       "layer_updates_per_iter: 2\n"
       "num_slots: 6\n"},
  };
  TempFolder folder;
  for (const auto& [format, options, text] : all) {
    write_placement_as(format, with_copies(), options, folder / "p.json");
    EXPECT_EQ(read_text(folder / "p.json"), text);
  }
}

TEST(PlacementFormats, ThatCountTheModelsLayersAreReadAtThoseAskedFor) {
  TempFolder folder;
  for (PlacementFormat format : {PlacementFormat::sglang, PlacementFormat::trtllm}) {
    write_placement_as(format, with_copies(), {.layers = {{1, 3}}}, folder / "p.json");
    const auto read = [&](std::vector<int> layers) {
      return read_placement_as(folder / "p.json", {.layers = std::move(layers), .num_ranks = 2}).placement;
    };
    expect_same(read({1, 3}),
                Placement({layer({{0, 1}, {1}, {0}, {0, 1}}, 2), layer({{0, 1}, {0}, {1}, {0, 1}}, 2)}));
    EXPECT_EQ(read({3}).num_layers(), 1);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  read({3, 4});
                }),
                HasSubstr("p.json has no layer 4; allowed: "));
    EXPECT_EQ(message_of<InvalidArgument>([&] {
                read({3, 1});
              }),
              "moe_layers: layer 1 after layer 3; allowed: ascending numbers in 0..65535");
  }
}

TEST(VllmPlacement, IsOneAmongRecordsOfOtherTypes) {
  const auto with = [](std::string_view row, std::string_view other) {
    const auto record = [](std::string_view of_layer) {
      return R"({"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 0, )"
             R"("num_slots": 2, "initial_global_assignments": {"0": )" +
             std::string(of_layer) + "}}";
    };
    const std::string statistics = R"({"record_type": "eplb_load_stats", "step": 1})";
    return read_placement_as(source_of(record(row) + "\n\n" + statistics + "\n" + record(other)),
                             {.num_ranks = 2});
  };
  EXPECT_EQ(with("[1, 0]", "[1,0]").placement.layer(0).owner(ExpertId(0)), RankId(1));
  EXPECT_EQ(message_of<ParseError>([&] { with("[1, 0]", "[0, 1]"); }),
            "f: line 4: record_type: is a placement unlike that in line 1; keep one of the two");
}

TEST(VllmAscendPlacement, IsRefusedWhereItsNumbersAreNotThoseOfItsLists) {
  constexpr std::string_view good = R"({"moe_layer_count": 2, "layer_list": [
      {"layer_id": 0, "device_count": 2, "device_list": [
        {"device_id": 0, "device_expert": [0, 2]}, {"device_id": 1, "device_expert": [1, 3]}]},
      {"layer_id": 1, "device_count": 2, "device_list": [
        {"device_id": 0, "device_expert": [0, 1]}, {"device_id": 1, "device_expert": [2, 3]}]}]})";
  EXPECT_FALSE(read_placement_as(source_of(good)).placement.layers().known());
  const auto refusal = [&](std::string_view from, std::string_view to) {
    std::string text(good);
    text.replace(text.find(from), from.size(), to);
    return message_of<ParseError>([&] { read_placement_as(source_of(text)); });
  };
  EXPECT_EQ(refusal("\"layer_id\": 1", "\"layer_id\": 0"),
            "f: layer_list[1].layer_id: is 0, but 1 by the lists; vLLM-Ascend goes by their order and "
            "lengths: put both in agreement");
  EXPECT_THAT(refusal("\"layer_id\": 0", "\"layer_id\": 2"),
              HasSubstr("layer_list[1].layer_id: is 1, but 3"));
  EXPECT_THAT(refusal("\"layer_id\": 1", "\"layer_id\": 2"),
              HasSubstr("layer_list[1].layer_id: is 2, but 1"));
  EXPECT_THAT(refusal("\"device_id\": 0", "\"device_id\": 1"),
              HasSubstr("layer_list[0].device_list[0].device_id: is 1, but 0"));
  EXPECT_THAT(refusal("\"device_count\": 2", "\"device_count\": 9"),
              HasSubstr("layer_list[0].device_count: is 9, but 2"));
  EXPECT_THAT(refusal("\"moe_layer_count\": 2", "\"moe_layer_count\": 3"),
              HasSubstr("is not a list of moe_layer_count = 3 layers"));
}

TEST(VllmAscendPlacement, ThatBeginsBehindDenseLayersHasTheirNumbers) {
  const PlacementFile file = read_placement_as(source_of(R"({"moe_layer_count": 2, "layer_list": [
      {"layer_id": 3, "device_list": [{"device_expert": [0]}, {"device_expert": [1]}]},
      {"layer_id": 4, "device_list": [{"device_expert": [1]}, {"device_expert": [0]}]}]})"),
                                               {});
  EXPECT_THAT(file.placement.layers().numbers(), ElementsAre(3, 4));
}

TEST(PlacementFormats, SayWhichOptionDoesNotFit) {
  TempFolder folder;
  const auto refusal = [&](PlacementFormat format, const PlacementFormatOptions& options) {
    return message_of<InvalidArgument>(
        [&] { write_placement_as(format, with_copies(), options, folder / "p.json"); });
  };
  for (PlacementFormat format : {PlacementFormat::sglang, PlacementFormat::trtllm}) {
    EXPECT_THAT(refusal(format, {}),
                HasSubstr("nobody said which of them the 2 layers of the placement are"));
    EXPECT_EQ(
        refusal(format, {.layers = {{3, 4, 5}}}),
        "moe_layers: names layers 3-5, but the placement has 2 layers without numbers; allowed: 2 numbers");
    EXPECT_EQ(refusal(format, {.layers = {{4, 3}}}),
              "moe_layers: layer 3 after layer 4; allowed: ascending numbers in 0..65535");
    EXPECT_EQ(refusal(format, {.layers = {{3, 4}}, .num_hidden_layers = 4}),
              "num_hidden_layers: 4, but the placement's last layer is number 4 of the model; allowed: "
              "5..65536");
  }
  EXPECT_EQ(refusal(PlacementFormat::trtllm, {.layers = {{3, 4}}, .layer_updates_per_iter = -1}),
            "layer_updates_per_iter: -1; allowed: 0 or more");
  EXPECT_TRUE(folder.names().empty());
}

TEST(PlacementFormats, LeaveMultiTokenPredictionToServersThatLookForIt) {
  TempFolder folder;
  const ModelLayers model{.num_hidden_layers = 3, .moe_layers = {2}, .mtp_layers = {3}};
  write_placement_as(PlacementFormat::sglang, with_copies(), {.model = model}, folder / "p.json");
  EXPECT_EQ(Json::parse(read_text(folder / "p.json"))["physical_to_logical_map"].size(), 3U);
  write_placement_as(PlacementFormat::vllm, with_copies(), {.model = model}, folder / "p.jsonl");
  EXPECT_EQ(read_placement_as(folder / "p.jsonl", {.num_ranks = 2}).placement.num_layers(), 1);
  write_placement_as(PlacementFormat::trtllm, with_copies(), {.model = model}, folder / "p.yaml");
  EXPECT_EQ(read_placement_as(folder / "p.yaml", {.num_ranks = 2}).placement.layers(), LayerNumbers({2, 3}));
  PlacementFile one = with_copies();
  one.placement = Placement({one.placement.layer(0)});
  write_placement_as(PlacementFormat::trtllm, one, {.model = model}, folder / "q.yaml");
  EXPECT_THAT(read_text(folder / "q.yaml"), HasSubstr("  3: [0, 1, 2, 3, 0, 1]\n"));
}

// Three MoE layers of which the first routes by a table, and one of multi-token prediction.
ModelLayers partly_recorded() {
  return {.num_hidden_layers = 4, .moe_layers = {1, 2, 3}, .mtp_layers = {4}, .table_layers = {1}};
}

TEST(PlacementFormats, HaveRowsInOrderForLayersOfTheModelThatWereNotPlaced) {
  TempFolder folder;
  PlacementFile file = with_copies();
  file.placement = file.placement.numbered(LayerNumbers({2, 3}));
  const std::string note =
      "no placement was made for layer 1 of the model, where a table chooses experts by token: the experts "
      "stay in order there";
  const auto write = [&](PlacementFormat format) {
    return write_placement_as(format, file, {.model = partly_recorded()}, folder / "p.json");
  };
  const auto read = [&] { return read_placement_as(folder / "p.json", {.num_ranks = 2}).placement; };
  const std::string in_order = "[0, 1, 2, 3, 0, 1]";
  for (PlacementFormat format : {PlacementFormat::vllm, PlacementFormat::vllm_ascend}) {
    EXPECT_THAT(write(format), ElementsAre(note));
    ASSERT_EQ(read().num_layers(), 3);
    EXPECT_EQ(read().layer(0), layer({{0, 1}, {0, 1}, {0}, {1}}, 2));
    EXPECT_EQ(read().layer(1), file.placement.layer(0));
  }
  EXPECT_THAT(write(PlacementFormat::sglang), ElementsAre(note));
  EXPECT_THAT(read_text(folder / "p.json"),
              HasSubstr("[\n  " + in_order + ",\n  " + in_order + ",\n  [0, 2,"));
  EXPECT_THAT(
      write(PlacementFormat::trtllm),
      ElementsAre("no placement was made for layers 1,4 of the model: the experts stay in order there"));
  EXPECT_THAT(read_text(folder / "p.json"), HasSubstr("  1: " + in_order + "\n  2: [0, 2,"));
  EXPECT_THAT(read_text(folder / "p.json"), HasSubstr("  4: " + in_order + "\n"));
  EXPECT_THAT(write(PlacementFormat::evenkeel), ElementsAre(note));
  EXPECT_EQ(read().layers(), LayerNumbers({1, 2, 3}));
  // Where ranks hold unequally many, homes are contiguous.
  file.placement = Placement({layer({{0}, {1}, {1}, {1}}, 2)}, LayerNumbers({3}));
  EXPECT_EQ(write(PlacementFormat::evenkeel).size(), 1U);
  EXPECT_EQ(read().layer(0), LayerPlacement::contiguous(4, 2));
}

TEST(PlacementFormats, SayWhichPredictionLayersAndRowsByCountTheyLeaveToTheReader) {
  TempFolder folder;
  PlacementFile file = with_copies();
  file.placement = file.placement.numbered(LayerNumbers({3, 4}));
  ModelLayers model{.num_hidden_layers = 4, .moe_layers = {3}, .mtp_layers = {4}};
  for (PlacementFormat format :
       {PlacementFormat::sglang, PlacementFormat::vllm, PlacementFormat::vllm_ascend})
    EXPECT_THAT(write_placement_as(format, file, {.model = model}, folder / "p.json"),
                ElementsAre(HasSubstr("layers of multi-token prediction (4) are left out, since")));
  EXPECT_THAT(write_placement_as(PlacementFormat::trtllm, file, {.model = model}, folder / "p.json"),
              testing::IsEmpty());
  // Without a model nobody knows whether all MoE layers are there.
  for (PlacementFormat format : {PlacementFormat::vllm, PlacementFormat::vllm_ascend})
    EXPECT_THAT(write_placement_as(format, file, {}, folder / "p.json"),
                ElementsAre(HasSubstr("counts MoE layers: its first 2 are taken to be layers 3-4; --model")));
}

TEST(PlacementFormats, TakeNumbersBesideAModelThatHasMore) {
  TempFolder folder;
  const PlacementFormatOptions options{.layers = {{2, 3}}, .model = partly_recorded()};
  EXPECT_EQ(write_placement_as(PlacementFormat::vllm, with_copies(), options, folder / "p.jsonl").size(), 1U);
  EXPECT_EQ(read_placement_as(folder / "p.jsonl", {.num_ranks = 2}).placement.num_layers(), 3);
  const auto refusal = [&](const PlacementFormatOptions& said) {
    return message_of<InvalidArgument>(
        [&] { write_placement_as(PlacementFormat::vllm, with_copies(), said, folder / "p.jsonl"); });
  };
  EXPECT_EQ(
      refusal({.layers = {{0, 1}}, .model = partly_recorded()}),
      "model: has experts in layers 1-3 (and 4 for multi-token prediction), but the placement has layers "
      "0-1; allowed: the config.json of the model that was recorded");
  // A row of a placement is of the n-th MoE layer, whatever routes that.
  EXPECT_EQ(refusal({.model = partly_recorded()}),
            "model: has experts in layers 1-3 (and 4 for multi-token prediction), but the placement has 2 "
            "layers without numbers; allowed: the config.json of the model that was recorded, or beside it "
            "--moe-layers (layers=): which of the model's layers the rows are");
}

TEST(PlacementFormats, NeedTheNumberOfRanksWhereTheFileDoesNotSayIt) {
  TempFolder folder;
  for (PlacementFormat format : foreign) {
    const std::string path = (folder / name_of(format)) + ".json";
    write_placement_as(format, with_copies(), {.layers = {{0, 1}}}, path);
    if (format == PlacementFormat::vllm_ascend) {
      EXPECT_EQ(read_placement_as(path).placement.num_ranks(), 2);
      EXPECT_EQ(message_of<InvalidArgument>([&] { read_placement_as(path, {.num_ranks = 3}); }),
                "ranks: 3, but " + path + " is for 2 ranks; allowed: 2, or a placement for 3");
      continue;
    }
    EXPECT_EQ(message_of<InvalidArgument>([&] { read_placement_as(path); }),
              "ranks: " + path + " does not say how many there are; allowed: 1 or more");
    EXPECT_THAT(message_of<ParseError>([&] { read_placement_as(path, {.num_ranks = 4}); }),
                HasSubstr("6 physical experts are not equally many on 4 ranks"));
  }
}

TEST(PlacementFormats, AreKnownByName) {
  for (PlacementFormat format : foreign) EXPECT_EQ(parse_placement_format(name_of(format)), format);
  EXPECT_EQ(message_of<InvalidArgument>([] { parse_placement_format("deepspeed"); }),
            "format: 'deepspeed'; allowed: evenkeel, sglang, vllm, vllm-ascend, trtllm");
}

TEST(Layers, AreNumbersAndRanges) {
  EXPECT_THAT(parse_layers("--moe-layers", "0,2,4-6"), ElementsAre(0, 2, 4, 5, 6));
  for (const char* text : {"", "3-", "-3", "a", "1,,2", "99999", "1-2-3", "1 "})
    EXPECT_EQ(message_of<InvalidArgument>([&] { parse_layers("--moe-layers", text); }).substr(0, 14),
              "--moe-layers: ")
        << text;
  for (const char* text : {"3-2", "4,4", "1-5,5"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { parse_layers("--moe-layers", text); }),
                HasSubstr("does not ascend"));
}

TEST(PlacementFormats, RefuseADamagedFileWithThePlace) {
  const std::pair<const char*, const char*> damaged[] = {
      {R"({"physical_to_logical_map": [[0, 1, 2, 4]]})",
       "f: physical_to_logical_map[0][3]: expert 4 is outside 0..3"},
      {R"({"physical_to_logical_map": [[0, 1, 2, -1]]})",
       "f: physical_to_logical_map[0][3]: expert -1 is outside 0..3"},
      {R"({"physical_to_logical_map": [[0, 1, 2, 3, 2, 2]]})",
       "f: physical_to_logical_map[0][5]: rank 1 holds expert 2 twice; a placement has an expert once on "
       "a rank"},
      {R"({"physical_to_logical_map": [[0, 1, 2, 3], [0, 1]]})",
       "f: physical_to_logical_map[1]: has 2 elements where the first had 4"},
      {R"({"physical_to_logical_map": [[0, 1, 2, 0]]})",
       "f: physical_to_logical_map[0]: expert 3 of 4 is on no rank"},
      {R"({"physical_to_logical_map": [[0, 1]]})",
       "f: physical_to_logical_map[0]: 2 physical experts cannot be 4 experts"},
      {R"({"physical_to_logical_map": []})", "f: has no layer"},
      {R"({"physical_to_logical_map": [[0, 1.5]]})",
       "f: physical_to_logical_map[0][1]: 1.5 is not a whole number"},
      {R"({"moe_layer_count": 2, "layer_list": []})",
       "f: layer_list: is not a list of moe_layer_count = 2 layers"},
      {R"({"moe_layer_count": 1, "layer_list": [{}]})", "f: layer_list[0].device_list: is missing"},
      {R"({"moe_layer_count": 1, "layer_list": [{"device_list": [{"device_expert": [0, 1]}, {}]}]})",
       "f: layer_list[0].device_list[1].device_expert: is missing"},
      {R"({"moe_layer_count": 1,
                    "layer_list": [{"device_list": [{"device_expert": [0, 1, 2]}, {"device_expert": [3]}]}]})",
       "f: layer_list[0].device_list[1].device_expert: has 1 experts where device 0 has 3"},
      {R"({"record_type": "eplb_load_stats"})", "f: record_type: no line has \"eplb_initial_mapping\""},
      {R"({"record_type": "eplb_initial_mapping", "version": 2})", "f: version: is 2; allowed: 1..1"},
      {R"({"record_type": "eplb_initial_mapping", "version": 1, "num_slots": 4, "num_redundant_experts": 4})",
       "f: num_redundant_experts: is 4; allowed: 0..3"},
      {R"({"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 0, "num_slots": 2, )"
       R"("initial_global_assignments": {"0": [0, 1], "2": [1, 0]}})",
       "f: initial_global_assignments.1: is missing"},
  };
  for (const auto& [text, message] : damaged)
    EXPECT_EQ(message_of<ParseError>(
                  [&] { read_placement_as(source_of(text), {.num_ranks = 2, .num_experts = 4}); }),
              message);
}

}  // namespace
}  // namespace evenkeel
