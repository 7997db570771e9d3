// Counts in JSON Lines, and vLLM's load statistics.
#include "evenkeel/io/convert.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CountLines, OfALayerEachAreReadToTheLast) {
  const Recording file = read_recording(source_of(
      "{\"layer\": 4, \"rank\": 0, \"counts\": [0, 5]}\n{\"layer\": 3, \"rank\": 0, \"counts\": [7, 2]}\n\n"
      "{\"layer\": 4, \"rank\": 1, \"counts\": [1, 1]}\n"));
  EXPECT_EQ(file.kind, "counts");
  EXPECT_EQ(file.format, "json");
  EXPECT_THAT(file.layers().numbers(), ElementsAre(3, 4));
  EXPECT_EQ(without_numbers(file.profile), RoutingProfile(2, 2, {7, 2, 1, 6}, {}));
}

TEST(CountLines, OfAnExpertEachAreALongTable) {
  const Recording file = read_recording(
      source_of("{\"layer\": 4, \"expert\": 1, \"count\": 5}\n{\"layer\": 3, \"expert\": 0, \"count\": 7}"));
  EXPECT_THAT(file.layers().numbers(), ElementsAre(3, 4));
  EXPECT_EQ(without_numbers(file.profile), RoutingProfile(2, 2, {7, 0, 0, 5}, {}));
}

TEST(CountLines, OfAllLayersEachAreAddedUp) {
  const Recording sglang =
      read_recording(source_of("{\"step\": 1, \"logical_count\": [[0, 0], [1, 2]]}\n"
                               "{\"step\": 2, \"logical_count\": [[0, 0], [10, 0.5]]}\n"));
  EXPECT_THAT(sglang.layers().numbers(), ElementsAre(1));
  EXPECT_EQ(without_numbers(sglang.profile), RoutingProfile(1, 2, {22, 5}, {}));
  EXPECT_THAT(sglang.notes, ElementsAre("loads that are not whole numbers are scaled by 2^1"));
  EXPECT_EQ(
      read_recording(source_of("{\"loads\": [[1, 2], [3, 4]]}\n{\"loads\": [[10, 0], [0, 0]]}\n")).profile,
      RoutingProfile(2, 2, {11, 2, 3, 4}, {}));
}

TEST(CountLines, ThatDoNotSayWhatTheyAreAreRefused) {
  const std::string one = "{\"loads\": [[1, 2]]}\n", four = "{\"layer\": 4, \"counts\": [0, 5]}\n";
  const std::string seven = "{\"layer\": 3, \"expert\": 0, \"count\": 7}\n";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"loads": [1, 2]})",
            "f: line 1: loads: is a list by expert, but the line does not say its layer"},
           {R"({"counts": [[1, 2]]})", "counts: may be a list by layer or by source rank"},
           {R"({"loads": [[1, 2]], "counts": [[1, 2]]})", "f: line 1: loads: is there as well as 'counts'"},
           {R"({"layer": 1, "values": [1, 2]})",
            "values: is a list with an unknown name; call the list of counts 'counts'"},
           {four + R"({"layer": 5, "counts": [7, 2, 1]})",
            "f: line 2: has other keys, or another number of experts, than the first line"},
           {one + R"({"loads": [[1, 2], [3, 4]]})",
            "f: line 2: loads: has shape [2, 2], but in the first record it has shape [1, 2]"},
           {one + R"({"layer": 3, "loads": [3, 4]})",
            "f: line 2: has its counts under another name, or in another form, than the first record"},
           {one + R"({"loads": [[1)", "f: line 2"},
           {one + R"({"loads": [[3, 4]], "transitions": [[[1, 2]]]})",
            "f: line 2: transitions: belongs to a profile"},
           {R"({"loads": [[1, 2]], "format": "evenkeel.profile.v1"})",
            "f: line 1: format: belongs to a profile"},
           {R"({"loads": [[1, 2]], "layers": [7]})", "f: line 1: layers: belongs to a profile"},
           {seven + R"({"layer": 3, "expert": 0, "count": "7"})", "f: line 2: count: is the text \"7\""},
           {seven + R"({"layer": "3", "expert": 0, "count": 7})", "f: line 2: layer: is the text \"3\""}})
    expect_no_recording({{text + "\n{}\n", HasSubstr(why)}});
  expect_no_recording({{four + four, HasSubstr("f: line 2: repeats layer 4 of line 1")}});
  const std::string ranked = "{\"layer\": 3, \"expert\": 0, \"count\": 7, \"rank\": \"";
  EXPECT_EQ(without_numbers(read_recording(source_of(ranked + "0\"}\n" + ranked + "1\"}\n")).profile),
            RoutingProfile(1, 1, {14}, {}));
}

std::string stats(int step, const std::string& load, const std::string& map, const std::string& more = "") {
  return R"({"record_type": "eplb_load_stats", "version": 1, "step": )" + std::to_string(step) +
         R"(, "num_ranks": 2, "expert_load": )" + load + ", \"p2l_map\": " + map + more + "}\n";
}

constexpr const char* mapping =
    R"({"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 1, "num_slots": 4, "initial_global_assignments": {"0": [0, 1, 2, 0]}})"
    "\n";

TEST(VllmStatistics, AddPhysicalCountsToTheExpertsOfEachRecordsMap) {
  const std::string text = stats(100, "[[1, 2, 3, 4], [5, 6, 7, 8]]", "[[0, 1, 2, 0], [2, 1, 0, 2]]") +
                           stats(200, "[[10, 20, 30, 40], [0, 0, 0, 0]]", "[[2, 1, 0, 1], [0, 1, 2, 2]]");
  const Recording file = read_recording(source_of(text));
  EXPECT_EQ(file.kind, "statistics");
  EXPECT_EQ(file.format, "vllm");
  EXPECT_FALSE(file.layers().known());
  EXPECT_THAT(file.notes, IsEmpty());
  EXPECT_EQ(file.profile, RoutingProfile(2, 3, {5 + 30, 2 + 60, 3 + 10, 7, 6, 13}, {}));
}

TEST(VllmStatistics, MayStandBesideMarkersAndAPlacement) {
  const std::string record = stats(1, "[[1, 2, 3, 4]]", "[[0, 1, 2, 0]]");
  const RoutingProfile expected(1, 3, {5, 2, 3}, {});
  const std::string marker = "{\"record_type\": \"session_metadata\", \"argv\": [\"serve\"]}\n";
  EXPECT_EQ(read_recording(source_of(marker + record)).profile, expected);
  for (const std::string& text : {mapping + record, record + mapping, marker + mapping + record}) {
    EXPECT_EQ(read_recording(source_of(text)).profile, expected);
    EXPECT_EQ(read_placement_as(source_of(text), {.num_ranks = 2}).placement.num_experts(), 3);
  }
  EXPECT_THAT(recording_refusal(source_of(mapping)), HasSubstr("is a placement, not routing"));
  TempFolder folder;
  write_text(folder / "both.jsonl", mapping + record);
  EXPECT_THAT(message_of<InvalidArgument>([&] { convert_file(folder / "both.jsonl", folder / "o.json"); }),
              HasSubstr("has both a placement and load statistics"));
}

TEST(VllmStatistics, OfAveragesKeepTheirRatios) {
  const Recording file = read_recording(source_of(stats(1, "[[0.5, 2, 3, 0.25]]", "[[0, 1, 2, 0]]")));
  EXPECT_EQ(file.profile, RoutingProfile(1, 3, {3, 8, 12}, {}));
  EXPECT_THAT(file.notes, ElementsAre("loads that are not whole numbers are scaled by 2^2"));
}

TEST(VllmStatistics, RefuseWhatDoesNotFit) {
  const std::string good = stats(1, "[[1, 2, 3, 4]]", "[[0, 1, 2, 0]]");
  expect_no_recording({
      {good + stats(2, "[[1, 2, 3]]", "[[0, 1, 2, 0]]"),
       HasSubstr("f: line 2: expert_load: does not have 1 layers of 4 physical experts, as p2l_map has")},
      {good + stats(2, "[[1, 2, 3, 4]]", "[[0, 1, 3, 2]]"),
       HasSubstr("f: line 2: p2l_map: has 1 layers of 4 experts, but an earlier record has 1 layers of 3")},
      {stats(2, "[[1, 2, 3, 4]]", "[[0, 2, 2, 0]]"), HasSubstr("p2l_map[0]: names only 2 of the 3 experts")},
      {stats(2, "[[1, -2, 3, 4]]", "[[0, 1, 2, 0]]"),
       HasSubstr("expert_load[0][1]: is -2; a load is 0 or more")},
      {stats(1, "[[1, 2]]", "[[0, 1]]", ", \"model\": \"a\"") +
           stats(1, "[[1, 2]]", "[[0, 1]]", ", \"model\": \"mtp\""),
       HasSubstr("line 2: model: is \"mtp\", but in an earlier record it is \"a\"")},
      {stats(1, "[[0, 0]]", "[[0, 1]]"), HasSubstr("has no assignment in any layer")},
  });
}

}  // namespace
}  // namespace evenkeel
