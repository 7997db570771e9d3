#include "evenkeel/io/read_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RoutingProfile matrix_of(std::string_view text, const std::string& axes = "") {
  const Recording file = read_recording(source_of(text), {.axes = axes});
  EXPECT_EQ(file.kind, "counts");
  return without_numbers(file.profile);
}

std::string routing_refusal(std::string_view text, const ReadOptions& options = {}) {
  return message_of<ParseError>([&] { read_recording(source_of(text), options); });
}

// One array of int64 in a file of the format that `name` ends in.
std::string array_file(const TempFolder& folder, const std::string& name, const std::string& array,
                       std::vector<std::int64_t> shape, std::vector<std::int64_t> values) {
  const FileFormat format = name.ends_with("npy")   ? FileFormat::npy
                            : name.ends_with("npz") ? FileFormat::npz
                                                    : FileFormat::safetensors;
  internal::write_arrays({internal::integers_to_write(array, std::move(shape), values)}, {}, folder / name,
                         format);
  return folder / name;
}

TEST(CountMatrix, IsReadFromLinesOfNumbers) {
  const RoutingProfile expected(2, 3, {1, 2, 3, 4, 0, 6}, {});
  EXPECT_EQ(matrix_of("1,2,3\n4,0,6\n", "layers,experts"), expected);
  EXPECT_EQ(matrix_of("e0,e1,e2\n1, 2, 3\r\n4.0,0,6e0"), expected);
  EXPECT_EQ(matrix_of("layer,e0,e1,e2\n3,1,2,3\n4,4,0,6\n"), expected);
  EXPECT_EQ(matrix_of("# by savetxt\n1.0e+00 2.0e+00 3.0e+00\n4 0 6\n\n", "layers,experts"), expected);
  EXPECT_EQ(matrix_of("1;2;3\n4;0;6\n", "layers,experts"), expected);
}

TEST(CountMatrix, OfAProgramThatMarksItsUtf8LosesNoRow) {
  const RoutingProfile expected(2, 3, {1, 2, 3, 4, 0, 6}, {});
  EXPECT_EQ(matrix_of("\xef\xbb\xbf"
                      "1,2,3\r\n4,0,6\r\n",
                      "layers,experts"),
            expected);
  EXPECT_EQ(matrix_of("\xef\xbb\xbflayer,e0,e1,e2\r\n3,1,2,3\r\n4,4,0,6\r\n"), expected);
  EXPECT_EQ(matrix_of("\xef\xbb\xbf# by hand\n1 2 3\n4 0 6\n", "layers,experts"), expected);
  EXPECT_EQ(matrix_of("\xef\xbb\xbf[[1, 2, 3], [4, 0, 6]]", "layers,experts"), expected);
}

TEST(CountMatrix, IsReadFromJsonLists) {
  EXPECT_EQ(matrix_of("[[1, 2], [3, 4]]", "layers,experts"), RoutingProfile(2, 2, {1, 2, 3, 4}, {}));
  EXPECT_EQ(matrix_of("[[[1, 2], [3, 4]], [[10, 20], [30, 5000]]]", "steps,layers,experts"),
            RoutingProfile(2, 2, {11, 22, 33, 5004}, {}));
}

TEST(CountMatrix, OfSglangInJsonLeavesDenseLayersOut) {
  const Recording file = read_recording(source_of(R"({"logical_count": [[0, 0], [3, 4], [0, 0], [1, 0]]})"));
  EXPECT_THAT(file.layers().numbers(), ElementsAre(1, 3));
  EXPECT_THAT(file.profile.loads(), ElementsAre(3, 4, 1, 0));
}

TEST(CountMatrix, IsReadFromArraysByName) {
  TempFolder folder;
  for (const char* name : {"counts", "logical_count", "expert_load", "tokens_per_expert", "weight"})
    for (const char* extension : {".npz", ".safetensors"})
      EXPECT_THAT(
          profile_in(array_file(folder, std::string("a") + extension, name, {2, 2}, {1, 2, 3, 4})).loads(),
          ElementsAre(1, 2, 3, 4))
          << name << extension;
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
  const auto refusal = [](const std::string& name, const std::string& axes) {
    return message_of<InvalidArgument>([&] { read_recording(test_data(name), {.axes = axes}); });
  };
  EXPECT_EQ(refusal("trace.safetensors", "counts"),
            "as: counts, but the file has the tokens of a trace; allowed: to leave it out");
  EXPECT_EQ(refusal("profile.safetensors", "trace"),
            "as: trace, but the file has counts; allowed: to leave it out");
  EXPECT_EQ(refusal("profile.safetensors", "layers,ranks,experts"),
            "axes: layers,ranks,experts, but the file has counts; allowed: to leave it out");
  EXPECT_EQ(
      message_of<InvalidArgument>(
          [] { read_recording(test_data("profile.safetensors"), {.columns = "layer,k..."}); }),
      "columns: are for a table without names, and the file says what it is; allowed: to leave them out");
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
  EXPECT_EQ(routing_refusal("{\"a\": 1}"),
            "f: is JSON, but neither a placement nor a profile, loads or counts");
  EXPECT_EQ(routing_refusal("{\"physical_to_logical_map\": [[0]]}"), "f: is a placement, not routing");
  EXPECT_EQ(routing_refusal("num_slots: 3\n"), "f: is a placement, not routing");
  EXPECT_EQ(routing_refusal(std::string("\x00\x01\x02", 3)),
            "f: byte 0: is neither safetensors, npz, npy, JSON nor a table of numbers");
  EXPECT_EQ(routing_refusal(""), "f: is empty");
  TempFolder folder;
  EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / ""); }), HasSubstr("is a folder without"));
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { read_recording(source_of("[[1, 2]]"), {.num_experts = 3, .axes = "layers,experts"}); }),
            "num_experts: 3, but the file has counts of 2; allowed: 2, or leave it out");
}

TEST(CountMatrix, RefusesNumbersThatAreNoCounts) {
  EXPECT_EQ(routing_refusal("1,2\n3,-4\n", {.axes = "counts"}), "f: element 3 is -4; a load is 0 or more");
  EXPECT_EQ(routing_refusal("1,2\n3\n"), "f: line 2: has 1 numbers where the first had 2");
  EXPECT_EQ(routing_refusal("1,2\n3,x\n"), "f: line 2, column 2: 'x' is not a number");
  EXPECT_EQ(routing_refusal("1,nan\n"),
            "f: line 1, column 2: 'nan' is not a number, and the line is no line of names");
  EXPECT_EQ(routing_refusal("layer,e0,e1,e2\n0,5,,7\n1,6,,8\n"), "f: line 2, column 3: is blank");
  EXPECT_THAT(routing_refusal(",1\n,2\n"), HasSubstr("f: line 1: has 1 columns of counts"));
  EXPECT_EQ(routing_refusal("1;;\n"), "f: line 1, column 2: is blank");
  EXPECT_EQ(routing_refusal("0,0\n0,0\n", {.axes = "counts"}), "f: has no assignment in any layer");
  EXPECT_EQ(routing_refusal("9223372036854775807,1\n", {.axes = "counts"}),
            "f: the total of loads is above 2^63-1");
  EXPECT_EQ(routing_refusal("e0,e1\n"), "f: is text, but neither JSON nor lines of numbers");
  EXPECT_EQ(routing_refusal("[[1, 2], [3]]"), "f: [1]: has 1 elements where the first had 2");
  EXPECT_EQ(routing_refusal("[[[[1]]]]"), "f: [0][0][0]: is a JSON array, not a whole number");
  EXPECT_THAT(routing_refusal("[]"), HasSubstr("f: shape [0] is neither counts"));
  EXPECT_THAT(routing_refusal("[1, 2]"), HasSubstr("f: shape [2] is neither counts"));
  EXPECT_EQ(routing_refusal(R"({"logical_count": [[-1]]})"),
            "f: logical_count: element 0 is -1; a load is 0 or more");
}

TEST(Steps, ThatContradictEachOtherAreRefusedWhereTheyAreAskedForAndElseAddedUp) {
  using Steps = ReadOptions::Steps;
  const std::string_view lines =
      "{\"step\": 1, \"logical_count\": [[1, 2], [3, 4]]}\n{\"step\": 1, \"logical_count\": [[5, 6], [7, "
      "8]]}\n";
  const RoutingProfile whole(2, 2, {6, 8, 10, 12}, {});
  EXPECT_EQ(read_recording(source_of(lines)).profile, whole);
  EXPECT_THAT(routing_refusal(lines, {.steps = Steps::kept}),
              HasSubstr("has a step that a line before has too"));
  const Recording recording = read_recording(source_of(lines), {.steps = Steps::if_told});
  EXPECT_EQ(recording.profile, whole);
  EXPECT_TRUE(recording.steps.empty());
  EXPECT_THAT(recording.notes, ElementsAre(HasSubstr("its steps are not told apart: f: line 2")));
}

TEST(NumExperts, OfCountsInAFolderMustBeTheirs) {
  const std::string folder = test_data("trtllm_statistics");
  EXPECT_EQ(message_of<InvalidArgument>([&] { read_recording(folder, {.num_experts = 6}); }),
            "num_experts: 6, but the file has counts of 5; allowed: 5, or leave it out");
  EXPECT_EQ(read_recording(folder, {.num_experts = 5}).profile.num_experts(), 5);
}

constexpr std::string_view step0 =
    R"({"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 2, "topk": 2, "top_indices": [[0, 5], [2, 1]]})"
    "\n"
    R"({"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 4, "rank": 0, "num_tokens": 2, "topk": 2, "top_indices": [[4, 3], [1, 0]]})"
    "\n";

std::vector<std::int32_t> ids_of(const Recording& file) {
  const TraceInfo& info = file.trace->info();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(info.num_tokens * info.assignments_per_token()));
  file.trace->read_ids({0, info.num_tokens}, ids);
  return ids;
}

TEST(MegatronTrace, PutsTheLayersOfAStepTogether) {
  const Recording file = read_recording(source_of(step0));
  EXPECT_EQ(file.format, "megatron");
  EXPECT_EQ(file.kind, "trace");
  EXPECT_THAT(file.layers().numbers(), ElementsAre(3, 4));
  EXPECT_EQ(file.trace->info().num_experts, 6);
  EXPECT_THAT(ids_of(file), ElementsAre(0, 5, 4, 3, 2, 1, 1, 0));
}

TEST(MegatronTrace, PairsTheMicroBatchesOfAStepInOrder) {
  const std::string text = std::string(step0) + std::string(step0);
  EXPECT_THAT(ids_of(read_recording(source_of(text))),
              ElementsAre(0, 5, 4, 3, 2, 1, 1, 0, 0, 5, 4, 3, 2, 1, 1, 0));
}

TEST(MegatronTrace, LeavesMultiTokenPredictionOutAndHolesWhereALayerWasNotRecorded) {
  const std::string text =
      std::string(step0) +
      R"({"step": 1, "block": "decoder", "layer": 4, "rank": 0, "num_tokens": 1, "topk": 1, "top_indices": [[5]]})"
      "\n\n"
      R"({"step": 1, "block": "mtp", "mtp_idx": 0, "layer": 0, "rank": 0, "num_tokens": 1, "topk": 1, "top_indices": [[9]]})";
  EXPECT_THAT(ids_of(read_recording(source_of(text))), ElementsAre(0, 5, 4, 3, 2, 1, 1, 0, -1, -1, 5, -1));
}

TEST(MegatronTrace, OfAllRanksInAFolderIsOneTrace) {
  TempFolder folder;
  write_text(folder / "router_trace_rank0.jsonl", step0);
  std::string other(step0);
  for (std::size_t at = 0; (at = other.find("\"rank\": 0", at)) != std::string::npos;) other[at + 8] = '1';
  write_text(folder / "router_trace_rank1.jsonl", other);
  const Recording file = read_recording(folder / ".", {.num_experts = 8});
  EXPECT_EQ(file.trace->info().num_tokens, 4);
  EXPECT_EQ(file.trace->info().num_experts, 8);
}

TEST(MegatronTrace, RefusesDamagedLinesByNumber) {
  const std::string good(step0);
  EXPECT_THAT(routing_refusal(good + "{\"step\": 1"), HasSubstr("f: line 3: byte "));
  EXPECT_EQ(routing_refusal(good + "{\"step\": 1}"), "f: line 3: rank: is missing");
  const auto line = [&](std::string_view tokens, std::string_view topk, std::string_view ids) {
    return routing_refusal(good + R"({"step": 0, "layer": 5, "rank": 0, "num_tokens": )" +
                           std::string(tokens) + ", \"topk\": " + std::string(topk) +
                           ", \"top_indices\": " + std::string(ids) + "}");
  };
  EXPECT_EQ(line("2", "1", "[[1]]"),
            "f: line 3: top_indices: shape [1, 1] is not [num_tokens, topk], [2, 1]");
  EXPECT_EQ(line("1", "2", "[[1]]"),
            "f: line 3: top_indices: shape [1, 1] is not [num_tokens, topk], [1, 2]");
  EXPECT_EQ(line("1", "1", "[[70000]]"), "f: line 3: top_indices: expert 70000 is outside -1..65535");
  EXPECT_EQ(line("1", "1", "[[1]]"),
            "f: line 3: num_tokens: layer 5 has 1 tokens where another layer of the same step has 2");
  EXPECT_EQ(line("-1", "1", "[]"), "f: line 3: top_indices: shape [0, 0] is not [num_tokens, topk], [-1, 1]");
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
  TempFolder folder;
  const std::string path = folder / "rank0.safetensors";
  const auto refused = [&](const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& arrays) {
    std::vector<internal::ArrayToWrite> all;
    for (const auto& [name, counts] : arrays)
      all.push_back(internal::integers_to_write(name, {std::ssize(counts)}, counts));
    internal::write_arrays(all, {}, path, FileFormat::safetensors);
    return message_of<ParseError>([&] { read_recording(folder / ""); });
  };
  EXPECT_EQ(refused({{"1_3", {1, 2}}, {"1_4", {1, 2}}, {"2_3", {1, 2}}}),
            path + ": iteration 2 has no layer 4");
  EXPECT_EQ(refused({{"1_3", {1, 2}}, {"3_3", {1, 2}}}), path + ": iteration 2 has no layer 3");
  EXPECT_EQ(refused({{"1_3", {1, 2}}, {"1_4", {1, 2, 3}}}), path + ": 1_4: shape [3] is not [2 experts]");
  EXPECT_EQ(refused({{"1_3", {1, -2}}}),
            path + ": 1_3: expert 1 has -2 tokens; counts are 0 or more, with a sum below 2^63");
  EXPECT_EQ(refused({{"1_3", {1, 2}}, {"x", {1}}}), path + ": x: is not named ITERATION_LAYER");
  write_text(folder / "meta_info.json", "{\"num_experts\": 3}");
  EXPECT_EQ(refused({{"1_3", {1, 2}}}), path + ": 1_3: shape [2] is not [3 experts]");
}

TEST(ReadRouting, EndsSoonOnceItIsAskedToStop) {
  TempFolder folder;
  const std::string dictionary = "{'descr': '|i1', 'fortran_order': False, 'shape': (40, 4, 4), }";
  std::string ids;
  for (int i = 0; i < 640; ++i) ids += static_cast<char>(i % 4);
  write_text(folder / "trace.npy", npy_text(dictionary, ids));
  write_text(folder / "counts.csv", "1,2,3,4\n5,6,7,8\n");
  write_text(folder / "loads.json", "{\"loads\": [[1, 2], [3, 4]]}");
  std::stop_source source;
  source.request_stop();
  for (const char* name : {"trace.npy", "counts.csv", "loads.json"}) {
    ReadOptions options;
    if (std::string_view(name) != "loads.json")
      options.axes = std::string_view(name) == "trace.npy" ? "trace" : "counts";
    EXPECT_NO_THROW(profile_in(folder / name, options)) << name;
    const StopScope scope(source.get_token());
    EXPECT_THROW(profile_in(folder / name, options), Stopped) << name;
  }
}

}  // namespace
}  // namespace evenkeel
