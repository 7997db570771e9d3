#include "evenkeel/io/placement_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array foreign = {PlacementFormat::sglang, PlacementFormat::vllm, PlacementFormat::vllm_ascend,
                                PlacementFormat::trtllm};

// A placement on two ranks.
Placement layers(const std::vector<std::vector<std::vector<int>>>& homes) {
  std::vector<LayerPlacement> made;
  for (const auto& of_layer : homes) made.emplace_back(of_layer, 2);
  return Placement(std::move(made));
}

// Two layers of 4 experts on 2 ranks; each layer has copies of two experts.
const Placement with_copies = layers({{{0, 1}, {1}, {0}, {0, 1}}, {{1, 0}, {0}, {1}, {1, 0}}});

// Places every expert of each layer on a random rank, equally many per rank; then adds copies where space is
// left.
Placement random_placement(int layers, int experts, int ranks, int on_rank, unsigned seed) {
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
  return Placement(std::move(made));
}

void expect_same(const Placement& a, const Placement& b) {
  ASSERT_EQ(a.num_layers(), b.num_layers());
  for (int l = 0; l < a.num_layers(); ++l) EXPECT_EQ(a.layer(l), b.layer(l)) << "layer " << l;
}

class PlacementFormats : public InFolder {
 protected:
  // Writes the file that read() reads; returns the writer's notes.
  std::vector<std::string> write(PlacementFormat format, const PlacementFormatOptions& options = {},
                                 const Placement& placement = with_copies) {
    return write_placement_as(format, {.placement = placement}, options, path);
  }
  Placement read(const PlacementFormatOptions& options = {.num_ranks = 2}) const {
    return read_placement_as(path, options).placement;
  }

  const std::string path = folder / "p.json";
};
class EveryFormat : public PlacementFormats, public testing::WithParamInterface<PlacementFormat> {};
class ForeignFormat : public EveryFormat {};

TEST_P(EveryFormat, GivesBackWhatWasWritten) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 5);
    const int experts = ranks * (1 + static_cast<int>(seed % 4));
    const int on_rank = std::min(experts, experts / ranks + static_cast<int>(seed % 3));
    const Placement placement = random_placement(3, experts, ranks, on_rank, seed);
    write(GetParam(), {.layers = {{0, 1, 2}}}, placement);
    SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << read_text(path));
    EXPECT_EQ(detect_placement_format(path), GetParam());
    expect_same(read({.num_ranks = ranks}), placement);
  }
}

TEST_P(ForeignFormat, RefusesRanksOfUnequalSizesAndLeavesNoFile) {
  const std::pair<Placement, const char*> unequal[] = {
      {layers({{{0}, {1}, {1}}}),
       "needs equally many physical experts on every rank, but in layer 0 rank 0 has 1 and rank 1 has 2; "
       "make the placement with 1 redundant expert"},
      {layers({{{0}, {1}}, {{0, 1}, {1, 0}}}),
       "needs equally many physical experts in every layer, but layer 0 has 2 and layer 1 has 4; allow more "
       "moves, or make a new placement"},
      // Layer 0 has fewer copies than were requested, so the message must not advise requesting that number
      // again.
      {layers({{{0}, {1}, {1}}, {{0, 1}, {1}, {0}}}),
       "but layer 0 has 3 and layer 1 has 4; allow more moves, or make a new placement"}};
  for (const auto& [placement, why] : unequal)
    EXPECT_THAT(message_of<Unsupported>([&] { write(GetParam(), {}, placement); }), HasSubstr(why));
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

TEST_F(PlacementFormats, AreWrittenAsTheirServersLoadThem) {
  const struct {
    PlacementFormat format;
    PlacementFormatOptions options;
    const char* text;
  } all[] = {
      // One key with a row for every hidden layer.
      {PlacementFormat::sglang,
       {.layers = {{1, 3}}, .num_hidden_layers = 5},
       "{\"physical_to_logical_map\": [\n  [0, 1, 2, 3, 0, 1],\n  [0, 2, 3, 0, 1, 3],\n"
       "  [0, 1, 2, 3, 0, 1],\n  [0, 1, 3, 0, 2, 3],\n  [0, 1, 2, 3, 0, 1]\n]}\n"},
      // One line that numbers MoE layers only.
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
  for (const auto& [format, options, text] : all) {
    write(format, options);
    EXPECT_EQ(read_text(path), text);
  }
}

TEST_F(PlacementFormats, ThatCountTheModelsLayersAreReadAtThoseAskedFor) {
  for (PlacementFormat format : {PlacementFormat::sglang, PlacementFormat::trtllm}) {
    write(format, {.layers = {{1, 3}}});
    expect_same(read({.layers = {{1, 3}}, .num_ranks = 2}),
                layers({{{0, 1}, {1}, {0}, {0, 1}}, {{0, 1}, {0}, {1}, {0, 1}}}));
    EXPECT_EQ(read({.layers = {{3}}, .num_ranks = 2}).num_layers(), 1);
    const PlacementFormatOptions gone{.layers = {{3, 4}}, .num_ranks = 2};
    EXPECT_THAT(message_of<InvalidArgument>([&] { read(gone); }),
                HasSubstr("p.json has no layer 4; allowed: "));
    const PlacementFormatOptions descending{.layers = {{3, 1}}, .num_ranks = 2};
    EXPECT_EQ(message_of<InvalidArgument>([&] { read(descending); }),
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
            "f: line 4: record_type: differs from the placement in line 1; keep one of the two");
}

TEST(VllmAscendPlacement, IsRefusedWhereItsNumbersAreNotThoseOfItsLists) {
  constexpr std::string_view good = R"({"moe_layer_count": 2, "layer_list": [
      {"layer_id": 0, "device_count": 2, "device_list": [
        {"device_id": 0, "device_expert": [0, 2]}, {"device_id": 1, "device_expert": [1, 3]}]},
      {"layer_id": 1, "device_count": 2, "device_list": [
        {"device_id": 0, "device_expert": [0, 1]}, {"device_id": 1, "device_expert": [2, 3]}]}]})";
  EXPECT_FALSE(read_placement_as(source_of(good)).placement.layers().known());
  const struct {
    std::string key, from, to;
    testing::Matcher<std::string> message;
  } changes[] = {
      {"layer_id", "1", "0",
       "f: layer_list[1].layer_id: is 0, but the lists give 1; vLLM-Ascend goes by the lists: make both "
       "agree"},
      {"layer_id", "0", "2", HasSubstr("layer_list[1].layer_id: is 1, but the lists give 3")},
      {"layer_id", "1", "2", HasSubstr("layer_list[1].layer_id: is 2, but the lists give 1")},
      {"device_id", "0", "1",
       HasSubstr("layer_list[0].device_list[0].device_id: is 1, but the lists give 0")},
      {"device_count", "2", "9", HasSubstr("layer_list[0].device_count: is 9, but the lists give 2")},
      {"moe_layer_count", "2", "3", HasSubstr("is not a list of moe_layer_count = 3 layers")},
  };
  for (const auto& [key, from, to, message] : changes) {
    std::string text(good);
    const std::string entry = "\"" + key + "\": ";
    text.replace(text.find(entry + from) + entry.size(), 1, to);
    EXPECT_THAT(message_of<ParseError>([&] { read_placement_as(source_of(text)); }), message);
  }
}

TEST(VllmAscendPlacement, ThatBeginsBehindDenseLayersHasTheirNumbers) {
  const PlacementFile file = read_placement_as(source_of(R"({"moe_layer_count": 2, "layer_list": [
      {"layer_id": 3, "device_list": [{"device_expert": [0]}, {"device_expert": [1]}]},
      {"layer_id": 4, "device_list": [{"device_expert": [1]}, {"device_expert": [0]}]}]})"),
                                               {});
  EXPECT_THAT(file.placement.layers().numbers(), ElementsAre(3, 4));
}

TEST_F(PlacementFormats, SayWhichOptionDoesNotFit) {
  const auto refusal = [&](PlacementFormat format, const PlacementFormatOptions& options) {
    return message_of<InvalidArgument>([&] { write(format, options); });
  };
  for (PlacementFormat format : {PlacementFormat::sglang, PlacementFormat::trtllm}) {
    EXPECT_THAT(refusal(format, {}),
                HasSubstr("evenkeel must know which of them are the placement's 2 layers"));
    EXPECT_EQ(refusal(format, {.layers = {{3, 4, 5}}}),
              "moe_layers: names layers 3-5, but the placement has 2 layers without numbers; allowed: 2 "
              "layer numbers");
    EXPECT_EQ(refusal(format, {.layers = {{4, 3}}}),
              "moe_layers: layer 3 after layer 4; allowed: ascending numbers in 0..65535");
    EXPECT_EQ(
        refusal(format, {.layers = {{3, 4}}, .num_hidden_layers = 4}),
        "num_hidden_layers: 4, but the placement's last layer is number 4 of the model; allowed: 5..65536");
  }
  EXPECT_EQ(refusal(PlacementFormat::trtllm, {.layers = {{3, 4}}, .layer_updates_per_iter = -1}),
            "layer_updates_per_iter: -1; allowed: 0 or more");
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(PlacementFormats, LeaveMultiTokenPredictionToServersThatLookForIt) {
  const ModelLayers model{.num_hidden_layers = 3, .moe_layers = {2}, .mtp_layers = {3}};
  write(PlacementFormat::sglang, {.model = model});
  EXPECT_EQ(Json::parse(read_text(path))["physical_to_logical_map"].size(), 3U);
  write(PlacementFormat::vllm, {.model = model});
  EXPECT_EQ(read().num_layers(), 1);
  write(PlacementFormat::trtllm, {.model = model});
  EXPECT_EQ(read().layers(), LayerNumbers({2, 3}));
  write(PlacementFormat::trtllm, {.model = model}, Placement({with_copies.layer(0)}));
  EXPECT_THAT(read_text(path), HasSubstr("  3: [0, 1, 2, 3, 0, 1]\n"));
}

// A model with three MoE layers, the first of which routes by a table, and a multi-token prediction layer.
ModelLayers partly_recorded() {
  return {.num_hidden_layers = 4, .moe_layers = {1, 2, 3}, .mtp_layers = {4}, .table_layers = {1}};
}

TEST_F(PlacementFormats, HaveRowsInOrderForLayersOfTheModelThatWereNotPlaced) {
  const std::string note =
      "no placement was made for layer 1 of the model, where a table chooses experts by token: their experts "
      "stay in order";
  const auto notes = [&](PlacementFormat format) {
    return write(format, {.model = partly_recorded()}, with_copies.numbered(LayerNumbers({2, 3})));
  };
  const std::string in_order = "[0, 1, 2, 3, 0, 1]";
  for (PlacementFormat format : {PlacementFormat::vllm, PlacementFormat::vllm_ascend}) {
    EXPECT_THAT(notes(format), ElementsAre(note));
    ASSERT_EQ(read().num_layers(), 3);
    EXPECT_EQ(read().layer(0), LayerPlacement({{0, 1}, {0, 1}, {0}, {1}}, 2));
    EXPECT_EQ(read().layer(1), with_copies.layer(0));
  }
  EXPECT_THAT(notes(PlacementFormat::sglang), ElementsAre(note));
  EXPECT_THAT(read_text(path), HasSubstr("[\n  " + in_order + ",\n  " + in_order + ",\n  [0, 2,"));
  EXPECT_THAT(notes(PlacementFormat::trtllm),
              ElementsAre("no placement was made for layers 1,4 of the model: their experts stay in order"));
  EXPECT_THAT(read_text(path), HasSubstr("  1: " + in_order + "\n  2: [0, 2,"));
  EXPECT_THAT(read_text(path), HasSubstr("  4: " + in_order + "\n"));
  EXPECT_THAT(notes(PlacementFormat::evenkeel), ElementsAre(note));
  EXPECT_EQ(read().layers(), LayerNumbers({1, 2, 3}));
  // If ranks hold different numbers of experts, the layers that were not placed get contiguous homes.
  const Placement unequal = layers({{{0}, {1}, {1}, {1}}}).numbered(LayerNumbers({3}));
  EXPECT_EQ(write(PlacementFormat::evenkeel, {.model = partly_recorded()}, unequal).size(), 1U);
  EXPECT_EQ(read().layer(0), LayerPlacement::contiguous(4, 2));
}

TEST_F(PlacementFormats, SayWhichPredictionLayersAndRowsByCountTheyLeaveToTheReader) {
  const Placement placement = with_copies.numbered(LayerNumbers({3, 4}));
  const ModelLayers model{.num_hidden_layers = 4, .moe_layers = {3}, .mtp_layers = {4}};
  for (PlacementFormat format :
       {PlacementFormat::sglang, PlacementFormat::vllm, PlacementFormat::vllm_ascend})
    EXPECT_THAT(write(format, {.model = model}, placement),
                ElementsAre(HasSubstr("layers of multi-token prediction (4) are left out, since")));
  EXPECT_THAT(write(PlacementFormat::trtllm, {.model = model}, placement), testing::IsEmpty());
  // Without a model it is unknown whether the placement has all MoE layers.
  for (PlacementFormat format : {PlacementFormat::vllm, PlacementFormat::vllm_ascend})
    EXPECT_THAT(
        write(format, {}, placement),
        ElementsAre(HasSubstr(
            "numbers MoE layers only: the model's first 2 are assumed to be layers 3-4; give --model")));
}

TEST_F(PlacementFormats, TakeNumbersBesideAModelThatHasMore) {
  EXPECT_EQ(write(PlacementFormat::vllm, {.layers = {{2, 3}}, .model = partly_recorded()}).size(), 1U);
  EXPECT_EQ(read().num_layers(), 3);
  const auto refusal = [&](const PlacementFormatOptions& said) {
    return message_of<InvalidArgument>([&] { write(PlacementFormat::vllm, said); });
  };
  EXPECT_EQ(refusal({.layers = {{0, 1}}, .model = partly_recorded()}),
            "model: has experts in layers 1-3 (and 4 for multi-token prediction), but the placement has "
            "layers 0-1; allowed: the config.json of the recorded model");
  // The n-th row of a placement belongs to the n-th MoE layer, however that layer routes.
  EXPECT_EQ(refusal({.model = partly_recorded()}),
            "model: has experts in layers 1-3 (and 4 for multi-token prediction), but the placement has 2 "
            "layers without numbers; allowed: the config.json of the recorded model; if only some of its "
            "layers were recorded, also --moe-layers (layers=) with those layers");
}

TEST_F(PlacementFormats, NeedTheNumberOfRanksWhereTheFileDoesNotSayIt) {
  for (PlacementFormat format : {PlacementFormat::sglang, PlacementFormat::vllm, PlacementFormat::trtllm}) {
    write(format, {.layers = {{0, 1}}});
    EXPECT_EQ(message_of<InvalidArgument>([&] { read({}); }),
              "ranks: is not given, and " + path + " does not say the number of ranks; allowed: 1 or more");
    EXPECT_THAT(message_of<ParseError>([&] { read({.num_ranks = 4}); }),
                HasSubstr("6 physical experts cannot be divided evenly over 4 ranks"));
  }
  write(PlacementFormat::vllm_ascend);
  EXPECT_EQ(read({}).num_ranks(), 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { read({.num_ranks = 3}); }),
            "ranks: 3, but " + path + " is for 2 ranks; allowed: 2, or a placement for 3");
}

TEST_F(PlacementFormats, AreKnownByName) {
  for (PlacementFormat format : foreign) EXPECT_EQ(parse_placement_format(name_of(format)), format);
  EXPECT_EQ(message_of<InvalidArgument>([] { parse_placement_format("deepspeed"); }),
            "format: 'deepspeed'; allowed: evenkeel, sglang, vllm, vllm-ascend, trtllm");
}

TEST(Layers, AreNumbersAndRanges) {
  EXPECT_THAT(parse_layers("--moe-layers", "0,2,4-6"), ElementsAre(0, 2, 4, 5, 6));
  const auto parse = [](const std::string& text) { parse_layers("--moe-layers", text); };
  for (const char* text : {"", "3-", "-3", "a", "1,,2", "99999", "1-2-3", "1 "})
    expect_refused<InvalidArgument>(parse, {{text, testing::StartsWith("--moe-layers: ")}});
  for (const char* text : {"3-2", "4,4", "1-5,5"})
    expect_refused<InvalidArgument>(parse, {{text, HasSubstr("does not ascend")}});
}

TEST_F(PlacementFormats, RefuseADamagedFileWithThePlace) {
  const auto sglang = [](const std::string& rows) { return "{\"physical_to_logical_map\": " + rows + "}"; };
  const std::string one = R"({"moe_layer_count": 1, "layer_list": [)",
                    mapping = R"({"record_type": "eplb_initial_mapping", )";
  const std::vector<Refused> damaged = {
      {sglang("[[0, 1, 2, 4]]"), "f: physical_to_logical_map[0][3]: expert 4 is outside 0..3"},
      {sglang("[[0, 1, 2, -1]]"), "f: physical_to_logical_map[0][3]: expert -1 is outside 0..3"},
      {sglang("[[0, 1, 2, 3, 2, 2]]"),
       "f: physical_to_logical_map[0][5]: rank 1 holds expert 2 twice; a rank may hold an expert only once"},
      {sglang("[[0, 1, 2, 3], [0, 1]]"),
       "f: physical_to_logical_map[1]: has 2 elements, but the first list has 4"},
      {sglang("[[0, 1, 2, 0]]"), "f: physical_to_logical_map[0]: expert 3 of 4 is on no rank"},
      {sglang("[[0, 1]]"), "f: physical_to_logical_map[0]: has 2 physical experts, fewer than the 4 experts"},
      {sglang("[]"), "f: has no layer"},
      {sglang("[[0, 1.5]]"), "f: physical_to_logical_map[0][1]: 1.5 is not a whole number"},
      {R"({"moe_layer_count": 2, "layer_list": []})",
       "f: layer_list: is not a list of moe_layer_count = 2 layers"},
      {one + "{}]}", "f: layer_list[0].device_list: is missing"},
      {one + R"({"device_list": [{"device_expert": [0, 1]}, {}]}]})",
       "f: layer_list[0].device_list[1].device_expert: is missing"},
      {one + R"({"device_list": [{"device_expert": [0, 1, 2]}, {"device_expert": [3]}]}]})",
       "f: layer_list[0].device_list[1].device_expert: has 1 experts, but device 0 has 3"},
      {R"({"record_type": "eplb_load_stats"})", "f: record_type: no line has \"eplb_initial_mapping\""},
      {mapping + R"("version": 2})", "f: version: is 2; allowed: 1..1"},
      {mapping + R"("version": 1, "num_slots": 4, "num_redundant_experts": 4})",
       "f: num_redundant_experts: is 4; allowed: 0..3"},
      {mapping + R"("version": 1, "num_redundant_experts": 0, "num_slots": 2, )"
                 R"("initial_global_assignments": {"0": [0, 1], "2": [1, 0]}})",
       "f: initial_global_assignments.1: is missing"},
  };
  const PlacementFormatOptions options{.num_ranks = 2, .num_experts = 4};
  expect_refused([&](const std::string& text) { read_placement_as(source_of(text), options); }, damaged);
}

}  // namespace
}  // namespace evenkeel
