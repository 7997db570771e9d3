#include "evenkeel/io/read_recording.h"

#include <nlohmann/json.hpp>

#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RoutingProfile matrix_of(std::string_view text, const std::string& axes = "") {
  const Recording file = read_recording(source_of(text), {.axes = axes});
  EXPECT_EQ(file.kind, "counts");
  return without_numbers(file.profile);
}

TEST(CountMatrix, IsReadFromLinesOfNumbersAndJsonLists) {
  const std::pair<const char*, const char*> written[] = {
      {"1,2,3\n4,0,6\n", "layers,experts"},
      {"e0,e1,e2\n1, 2, 3\r\n4.0,0,6e0", ""},
      {"layer,e0,e1,e2\n3,1,2,3\n4,4,0,6\n", ""},
      {"# by savetxt\n1.0e+00 2.0e+00 3.0e+00\n4 0 6\n\n", "layers,experts"},
      {"1;2;3\n4;0;6\n", "layers,experts"},
      {"[[1, 2, 3], [4, 0, 6]]", "layers,experts"},
      {"[[[1, 2, 2], [3, 0, 5]], [[0, 0, 1], [1, 0, 1]]]", "steps,layers,experts"},
      // Files that begin with a UTF-8 byte-order mark; no row is lost.
      {"\xef\xbb\xbf"
       "1,2,3\r\n4,0,6\r\n",
       "layers,experts"},
      {"\xef\xbb\xbflayer,e0,e1,e2\r\n3,1,2,3\r\n4,4,0,6\r\n", ""},
      {"\xef\xbb\xbf# by hand\n1 2 3\n4 0 6\n", "layers,experts"},
      {"\xef\xbb\xbf[[1, 2, 3], [4, 0, 6]]", "layers,experts"},
  };
  for (const auto& [text, axes] : written)
    EXPECT_EQ(matrix_of(text, axes), RoutingProfile(2, 3, {1, 2, 3, 4, 0, 6}, {})) << text;
}

TEST(CountMatrix, OfSglangInJsonLeavesDenseLayersOut) {
  const Recording file = read_recording(source_of(R"({"logical_count": [[0, 0], [3, 4], [0, 0], [1, 0]]})"));
  EXPECT_THAT(file.layers().numbers(), ElementsAre(1, 3));
  EXPECT_THAT(file.profile.loads(), ElementsAre(3, 4, 1, 0));
}

TEST(CountMatrix, IsReadFromArraysByName) {
  TempFolder folder;
  for (const char* name : {"counts", "logical_count", "expert_load", "tokens_per_expert", "weight"})
    for (const char* file : {"a.npz", "a.safetensors"})
      EXPECT_THAT(profile_in(array_file(folder, file, name, {2, 2}, {1, 2, 3, 4})).loads(),
                  ElementsAre(1, 2, 3, 4))
          << name << " in " << file;
}

TEST(CountMatrix, KeepsLayersWithoutLoadWhereRowsAreNotTheModelsLayers) {
  EXPECT_EQ(matrix_of("1,2\n0,0\n", "layers,experts"), RoutingProfile(2, 2, {1, 2, 0, 0}, {}));
}

TEST(CountMatrix, ThatBeginsWithADenseLayerHasOneRowForEachOfTheModelsLayers) {
  const Recording file = read_recording(source_of("0,0\n1,2\n0,0\n3,4\n"), {.axes = "layers,experts"});
  EXPECT_THAT(file.layers().numbers(), ElementsAre(1, 3));
  EXPECT_THAT(file.profile.loads(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(file.notes, ElementsAre("read as layers,experts: 4 layers of 2 experts",
                                      HasSubstr("layers 0,2 have no assignment")));
}

TEST(ReadRecording, IsRefusedWhereAFileIsKnownToHoldTheOther) {
  const ReadOptions counts{.axes = "counts"}, trace{.axes = "trace"}, by_rank{.axes = "layers,ranks,experts"},
      columns{.columns = "layer,k..."}, six{.num_experts = 6};
  for (const auto& [file, options, message] : std::vector<std::tuple<const char*, ReadOptions, const char*>>{
           {"trace.safetensors", counts,
            "as: counts, but the file has the tokens of a trace; allowed: to leave it out"},
           {"profile.safetensors", trace, "as: trace, but the file has counts; allowed: to leave it out"},
           {"profile.safetensors", by_rank,
            "axes: layers,ranks,experts, but the file has counts; allowed: to leave it out"},
           {"profile.safetensors", columns,
            "columns: apply only to a table without column names, but the file names what it holds; allowed: "
            "to "
            "leave them out"},
           {"trtllm_statistics", six,
            "num_experts: 6, but the file has counts of 5 experts; allowed: 5, or leave it out"}})
    EXPECT_EQ(recording_refusal<InvalidArgument>(test_data(file), options), message);
  EXPECT_EQ(profile_in(test_data("trtllm_statistics"), {.num_experts = 5}).num_experts(), 5);
  EXPECT_EQ(message_of<InvalidArgument>([] { parse_as("--as", "ids"); }),
            "--as: 'ids'; allowed: counts, trace");
}

TEST(ReadRecording, TakesOurOwnFilesToo) {
  EXPECT_EQ(profile_in(test_data("profile.safetensors")), read_profile(test_data("profile.safetensors")));
  EXPECT_EQ(profile_in(test_data("trace.safetensors")),
            profile_trace(*open_trace(test_data("trace.safetensors"))));
  const Recording loads = read_recording(source_of(R"({"counts": [[1, 2], [3, 4]]})"));
  EXPECT_EQ(loads.kind, "loads");
  EXPECT_EQ(loads.profile, RoutingProfile(1, 2, {4, 6}, {}));
}

TEST(ReadRecording, SaysWhatItIsNot) {
  expect_no_recording({
      {"{\"a\": 1}", "f: is JSON, but neither a placement nor a profile, loads or counts"},
      {"{\"physical_to_logical_map\": [[0]]}", "f: is a placement, not routing"},
      {"num_slots: 3\n", "f: is a placement, not routing"},
      {std::string("\x00\x01\x02", 3),
       "f: byte 0: is neither safetensors, npz, npy, JSON nor a table of numbers"},
      {"", "f: is empty"},
  });
  const TempFolder folder;
  EXPECT_THAT(recording_refusal(folder / ""), HasSubstr("is a folder without"));
  EXPECT_EQ(
      recording_refusal<InvalidArgument>(source_of("[[1, 2]]"), {.num_experts = 3, .axes = "layers,experts"}),
      "num_experts: 3, but the file has counts of 2 experts; allowed: 2, or leave it out");
}

TEST(CountMatrix, RefusesNumbersThatAreNoCounts) {
  const ReadOptions counts{.axes = "counts"};
  expect_no_recording({
      {"1,2\n3,-4\n", "f: element 3 is -4; a load is 0 or more", counts},
      {"1,2\n3\n", "f: line 2: has 1 numbers, but the first line has 2"},
      {"1,2\n3,x\n", "f: line 2, column 2: 'x' is not a number"},
      {"1,nan\n", "f: line 1, column 2: 'nan' is not a number, and the line is not one of column names"},
      {"layer,e0,e1,e2\n0,5,,7\n1,6,,8\n", "f: line 2, column 3: is blank"},
      {",1\n,2\n", HasSubstr("f: line 1: has 1 columns of counts")},
      {"1;;\n", "f: line 1, column 2: is blank"},
      {"0,0\n0,0\n", "f: has no assignment in any layer", counts},
      {"9223372036854775807,1\n", "f: the total of loads is above 2^63-1", counts},
      {"e0,e1\n", "f: is text, but neither JSON nor lines of numbers"},
      {"[[1, 2], [3]]", "f: [1]: has 1 elements, but the first list has 2"},
      {"[[[[1]]]]", "f: [0][0][0]: is a JSON array, not a whole number"},
      {"[]", HasSubstr("f: shape [0] fits neither counts")},
      {"[1, 2]", HasSubstr("f: shape [2] fits neither counts")},
      {R"({"logical_count": [[-1]]})", "f: logical_count: element 0 is -1; a load is 0 or more"},
  });
}

// One line of a Megatron router trace.
std::string line_of(int step, int layer, int rank, int tokens, int top_k, const std::string& ids) {
  return nlohmann::json{{"step", step},
                        {"block", "decoder"},
                        {"layer", layer},
                        {"rank", rank},
                        {"num_tokens", tokens},
                        {"topk", top_k},
                        {"top_indices", nlohmann::json::parse(ids)}}
             .dump() +
         "\n";
}

std::string step_of(int rank) {
  return line_of(0, 3, rank, 2, 2, "[[0, 5], [2, 1]]") + line_of(0, 4, rank, 2, 2, "[[4, 3], [1, 0]]");
}

std::vector<std::int32_t> ids_in(const std::string& text) {
  return ids_of(*read_recording(source_of(text)).trace);
}

TEST(MegatronTrace, PutsTheLayersOfAStepTogether) {
  const Recording file = read_recording(source_of(step_of(0)));
  EXPECT_EQ(file.format, "megatron");
  EXPECT_EQ(file.kind, "trace");
  EXPECT_THAT(file.layers().numbers(), ElementsAre(3, 4));
  EXPECT_EQ(file.trace->info().num_experts, 6);
  EXPECT_THAT(ids_of(*file.trace), ElementsAre(0, 5, 4, 3, 2, 1, 1, 0));
}

TEST(MegatronTrace, PairsTheMicroBatchesOfAStepInOrder) {
  EXPECT_THAT(ids_in(step_of(0) + step_of(0)), ElementsAre(0, 5, 4, 3, 2, 1, 1, 0, 0, 5, 4, 3, 2, 1, 1, 0));
}

TEST(MegatronTrace, LeavesMultiTokenPredictionOutAndHolesWhereALayerWasNotRecorded) {
  const std::string prediction =
      R"({"step": 1, "block": "mtp", "mtp_idx": 0, "layer": 0, "rank": 0, "num_tokens": 1, "topk": 1, "top_indices": [[9]]})";
  EXPECT_THAT(ids_in(step_of(0) + line_of(1, 4, 0, 1, 1, "[[5]]") + "\n" + prediction),
              ElementsAre(0, 5, 4, 3, 2, 1, 1, 0, -1, -1, 5, -1));
}

TEST(MegatronTrace, OfAllRanksInAFolderIsOneTrace) {
  const TempFolder folder;
  write_text(folder / "router_trace_rank0.jsonl", step_of(0));
  write_text(folder / "router_trace_rank1.jsonl", step_of(1));
  const Recording file = read_recording(folder / ".", {.num_experts = 8});
  EXPECT_EQ(file.trace->info().num_tokens, 4);
  EXPECT_EQ(file.trace->info().num_experts, 8);
}

TEST(MegatronTrace, RefusesDamagedLinesByNumber) {
  const std::string good = step_of(0), shape = "f: line 3: top_indices: shape ";
  expect_no_recording({
      {good + "{\"step\": 1", HasSubstr("f: line 3: byte ")},
      {good + "{\"step\": 1}", "f: line 3: rank: is missing"},
      {good + line_of(0, 5, 0, 2, 1, "[[1]]"), shape + "[1, 1] is not [num_tokens, topk] = [2, 1]"},
      {good + line_of(0, 5, 0, 1, 2, "[[1]]"), shape + "[1, 1] is not [num_tokens, topk] = [1, 2]"},
      {good + line_of(0, 5, 0, -1, 1, "[]"), shape + "[0, 0] is not [num_tokens, topk] = [-1, 1]"},
      {good + line_of(0, 5, 0, 1, 1, "[[70000]]"),
       "f: line 3: top_indices: expert 70000 is outside -1..65535"},
      {good + line_of(0, 5, 0, 1, 1, "[[1]]"),
       "f: line 3: num_tokens: layer 5 has 1 tokens, but another layer of the same step has 2"},
  });
}

TEST(TrtllmStatistics, OfAFolderAddUpRanksAndIterations) {
  const Recording file = read_recording(test_data("trtllm_statistics"));
  EXPECT_EQ(file.kind, "statistics");
  EXPECT_EQ(file.format, "trtllm");
  EXPECT_THAT(file.layers().numbers(), ElementsAre(3, 4));
  std::vector<std::int64_t> expected;
  for (int layer : {3, 4})
    for (int e = 0; e < 5; ++e) {
      std::int64_t sum = 0;
      for (int iteration : {100, 101})
        for (int rank : {0, 1}) sum += 2 * e + iteration + 10 * layer + 100 * rank;
      expected.push_back(sum);
    }
  EXPECT_THAT(file.profile.loads(), testing::ElementsAreArray(expected));
}

TEST(TrtllmStatistics, OfOneRankAreReadAsAFile) {
  const Recording file = read_recording(test_data("trtllm_statistics/rank1.safetensors"));
  EXPECT_EQ(file.kind, "statistics");
  EXPECT_EQ(file.profile.load(LayerId(0), ExpertId(1)), 2 * (2 + 30 + 100) + 201);
}

TEST(TrtllmStatistics, MustBeComplete) {
  const TempFolder folder;
  const std::string path = folder / "rank0.safetensors";
  const std::pair<std::map<std::string, std::vector<std::int64_t>>, const char*> incomplete[] = {
      {{{"1_3", {1, 2}}, {"1_4", {1, 2}}, {"2_3", {1, 2}}},
       "iteration 2 has no layer 4; every iteration needs all layers"},
      {{{"1_3", {1, 2}}, {"3_3", {1, 2}}}, "iteration 2 has no layer 3; every iteration needs all layers"},
      {{{"1_3", {1, 2}}, {"1_4", {1, 2, 3}}}, "1_4: shape [3] is not [2 experts]"},
      {{{"1_3", {1, -2}}}, "1_3: expert 1 has -2 tokens; counts are 0 or more, with a sum below 2^63"},
      {{{"1_3", {1, 2}}, {"x", {1}}}, "x: is not named ITERATION_LAYER, as in 104_3"},
  };
  for (const auto& [arrays, message] : incomplete) {
    std::vector<internal::ArrayToWrite> all;
    for (const auto& [name, counts] : arrays)
      all.push_back(internal::integers_to_write(name, {std::ssize(counts)}, counts));
    internal::write_arrays(all, {}, path, FileFormat::safetensors);
    EXPECT_EQ(recording_refusal(folder / ""), path + ": " + message);
  }
  array_file(folder, "rank0.safetensors", "1_3", {2}, {1, 2});
  write_text(folder / "meta_info.json", "{\"num_experts\": 3}");
  EXPECT_EQ(recording_refusal(folder / ""), path + ": 1_3: shape [2] is not [3 experts]");
}

TEST(ReadRouting, EndsSoonOnceItIsAskedToStop) {
  const TempFolder folder;
  const std::string dictionary = "{'descr': '|i1', 'fortran_order': False, 'shape': (40, 4, 4), }";
  std::string ids;
  for (int i = 0; i < 640; ++i) ids += static_cast<char>(i % 4);
  const std::pair<std::string, ReadOptions> files[] = {{npy_text(dictionary, ids), {.axes = "trace"}},
                                                       {"1,2,3,4\n5,6,7,8\n", {.axes = "counts"}},
                                                       {"{\"loads\": [[1, 2], [3, 4]]}", {}}};
  std::stop_source source;
  source.request_stop();
  for (const auto& [text, options] : files) {
    write_text(folder / "file", text);
    EXPECT_NO_THROW(profile_in(folder / "file", options)) << text;
    const StopScope scope(source.get_token());
    EXPECT_THROW(profile_in(folder / "file", options), Stopped) << text;
  }
}

}  // namespace
}  // namespace evenkeel
