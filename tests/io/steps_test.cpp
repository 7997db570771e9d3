// Files that separate steps: the same two steps, of two layers with three experts, in every supported form.
#include <algorithm>

#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using Loads = std::vector<std::vector<std::int64_t>>;  // [steps][layers, experts]

const Loads two = {{1, 0, 3, 2, 2, 0}, {5, 1, 0, 0, 0, 6}};

// The steps' loads, sorted. Checks that they add up to the profile read without steps.
Loads steps_in(const ByteSource& source) {
  const Recording recording = read_recording(source, {.steps = ReadOptions::Steps::kept});
  Loads steps;
  for (const RoutingProfile& step : recording.steps)
    steps.emplace_back(step.loads().begin(), step.loads().end());
  std::vector<std::int64_t> sum(recording.profile.loads().size(), 0);
  for (const auto& step : steps) std::ranges::transform(sum, step, sum.begin(), std::plus());
  if (!steps.empty()) {
    EXPECT_TRUE(std::ranges::equal(profile_in(source).loads(), sum));
  }
  std::ranges::sort(steps);
  return steps;
}

TEST(Steps, AreSaidByColumnsKeysOrTheFirstDimension) {
  for (const char* text : {
           R"({"logical_count": [[[1, 0, 3], [2, 2, 0]], [[5, 1, 0], [0, 0, 6]]]})",
           "step,layer,expert,count\n0,0,0,1\n0,0,2,3\n0,1,0,2\n0,1,1,2\n1,0,0,5\n1,0,1,1\n1,1,2,6\n",
           // The counts in eighths, whose proportions are kept, under other column names.
           "Forward Pass,layer,expert,count\n0,0,0,.125\n0,0,2,.375\n0,1,0,.25\n0,1,1,.25\n1,0,0,.625\n"
           "1,0,1,.125\n1,1,2,.75\n",
           // The counts of all ranks are added up, whatever the order of lines.
           "rank,batch,layer,expert,count\n1,1,1,2,4\n0,0,0,2,1\n0,0,0,0,1\n1,0,0,2,2\n0,0,1,0,2\n"
           "0,0,1,1,2\n0,1,0,0,5\n0,1,0,1,1\n0,1,1,2,2\n",
           // Several columns together identify a step.
           "iteration,batch,layer,expert,count\n0,0,0,0,1\n0,0,0,2,3\n0,0,1,0,2\n0,0,1,1,2\n0,1,0,0,5\n"
           "0,1,0,1,1\n0,1,1,2,6\n",
           "step\tlayer\te0\te1\te2\n0\t0\t1\t0\t3\n0\t1\t2\t2\t0\n100\t0\t5\t1\t0\n100\t1\t0\t0\t6\n",
           R"({"step": 0, "rank": 0, "layer": 0, "counts": [1, 0, 1]}
{"step": 0, "rank": 1, "layer": 0, "counts": [0, 0, 2]}
{"step": 0, "rank": 0, "layer": 1, "counts": [2, 2, 0]}
{"step": 1, "rank": 0, "layer": 0, "counts": [5, 1, 0]}
{"step": 1, "rank": 0, "layer": 1, "counts": [0, 0, 6]})",
           R"({"step": 0, "rank": 0, "logical_count": [[1, 0, 0], [2, 0, 0]]}
{"step": 1, "rank": 0, "logical_count": [[5, 1, 0], [0, 0, 6]]}
{"step": 0, "rank": 1, "logical_count": [[0, 0, 3], [0, 2, 0]]})",
           // Windows of steps, dumped one after the other or by each rank.
           R"({"step": 0, "expert_load": [[[1, 0, 3], [2, 2, 0]]]}
{"step": 7, "expert_load": [[[5, 1, 0], [0, 0, 6]]]})",
           R"({"rank": 0, "expert_load": [[[1, 0, 0], [2, 2, 0]], [[5, 0, 0], [0, 0, 0]]]}
{"rank": 1, "expert_load": [[[0, 0, 3], [0, 0, 0]], [[0, 1, 0], [0, 0, 6]]]})",
       })
    EXPECT_EQ(steps_in(source_of(text)), two) << text;
  // A layer that is missing from a step has no load in that step.
  EXPECT_EQ(steps_in(source_of("step,layer,expert,count\n0,0,0,1\n0,1,1,4\n2,1,0,3\n")),
            (Loads{{0, 0, 3, 0}, {1, 0, 0, 4}}));
  // A file of one layer. The first column is an index that numbers the lines, as pandas writes it.
  EXPECT_EQ(steps_in(source_of(",step,expert_0,expert_1\n0,0,1,2\n1,1,3,0\n")), (Loads{{1, 2}, {3, 0}}));
}

TEST(Steps, AreNoneWhereNothingSaysThem) {
  for (const char* text : {"rank,layer,expert,count\n0,0,0,3\n0,0,1,4\n1,0,0,5\n1,0,1,6\n",
                           "timestamp,layer,expert,count\n10,0,0,3\n10,0,1,4\n11,0,0,5\n11,0,1,6\n",
                           "layer,expert,count\n0,0,3\n0,1,4\n",
                           "{\"logical_count\": [[1, 2]]}\n{\"logical_count\": [[3, 4]]}\n"})
    EXPECT_EQ(steps_in(source_of(text)), Loads()) << text;
}

TEST(Steps, ThatNobodyCanTellApartAreRefusedWhereTheyAreAskedForAndElseAddedUp) {
  const std::string again = "repeats the step of an earlier line",
                    one = R"({"step": 1, "expert_load": [[1, 2]]})", none = R"({"expert_load": [[1, 2]]})",
                    window = R"({"expert_load": [[[1, 2]], [[3, 4]]]})";
  for (const auto& [first, second, why] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {one, one, again},
           {window, window, again},
           {one, none, "gives its step nowhere, but the first record gives its step under 'step'"},
           {one, R"({"iteration": 2, "expert_load": [[1, 2]]})",
            "gives its step under 'iteration', but the first record gives its step under 'step'"},
           {R"({"expert_load": [[[1, 2]]]})", none,
            "gives its step nowhere, but the first record gives its step by its place in the list"}}) {
    const ByteSource source = source_of(first + "\n" + second + "\n");
    EXPECT_THAT(recording_refusal(source, {.steps = ReadOptions::Steps::kept}),
                HasSubstr("f: line 2: " + why));
    const Recording whole = read_recording(source, {.steps = ReadOptions::Steps::if_consistent});
    EXPECT_EQ(whole.profile, profile_in(source));
    EXPECT_TRUE(whole.steps.empty());
    EXPECT_THAT(whole.notes, testing::Contains(HasSubstr("its steps are not kept: f: line 2")));
  }
  std::string sparse = "step,layer,expert,count\n";
  for (int step = 0; step < 3000; ++step)
    sparse +=
        std::to_string(step) + "," + std::to_string(step % 60) + "," + std::to_string(step % 250) + ",1\n";
  EXPECT_THAT(recording_refusal(source_of(sparse), {.steps = ReadOptions::Steps::kept}),
              HasSubstr("has only 3000 numbers for 3000 steps of 60 layers of 250 experts"));
}

// When experts are rearranged, vLLM's step numbers restart at 0 and the map changes.
TEST(Steps, AreTheRecordsOfVllm) {
  const std::string stats = R"({"record_type": "eplb_load_stats", "version": 1, "step": )";
  const std::string text =
      stats + R"(7, "p2l_map": [[0, 1, 2, 0], [2, 1, 0, 0]], "expert_load": [[1, 0, 3, 0], [0, 2, 1, 1]]})" +
      "\n{\"record_type\": \"other\"}\n" + stats +
      R"(0, "p2l_map": [[1, 0, 2, 1], [0, 1, 2, 2]], "expert_load": [[1, 5, 0, 0], [0, 0, 2, 4]]})";
  EXPECT_EQ(steps_in(source_of(text)), two);
}

// Uses the formula of the test TrtllmStatistics.OfAFolderAddUpRanksAndIterations.
TEST(Steps, AreTheIterationsOfTensorRtLlm) {
  Loads expected(2);
  for (int iteration : {100, 101})
    for (int layer : {3, 4})
      for (int e = 0; e < 5; ++e)
        expected[static_cast<std::size_t>(iteration - 100)].push_back(2 * (2 * e + iteration + 10 * layer) +
                                                                      100);
  EXPECT_EQ(steps_in(test_data("trtllm_statistics")), expected);
  const Recording kept = read_recording(test_data("trtllm_statistics"), {.steps = ReadOptions::Steps::kept});
  EXPECT_EQ(kept.steps[0].layers(), LayerNumbers({3, 4}));
}

// Two ranks, each with both micro-batches of one step.
TEST(Steps, AreTheMicroBatchesOfMegatron) {
  const TempFolder folder;
  const auto write = [&](const std::string& rank, const std::vector<std::string>& ids) {
    std::string lines;
    for (std::size_t i = 0; i < ids.size(); ++i)
      lines += R"({"step": 100, "topk": 1, "layer": )" + std::to_string(i % 2) + ", \"rank\": " + rank +
               ", \"num_tokens\": " + (i < 2 ? "2" : "3") + ", \"top_indices\": " + ids[i] + "}\n";
    write_text(folder / "router_trace_rank" + rank + ".jsonl", lines);
  };
  write("0", {"[[0], [2]]", "[[0], [1]]", "[[0], [0], [1]]", "[[2], [2], [2]]"});
  write("1", {"[[2], [2]]", "[[1], [0]]", "[[0], [0], [0]]", "[[2], [2], [2]]"});
  EXPECT_EQ(steps_in(folder / "."), two);
  // Windows of steps, as requested by step_tokens.
  const ReadOptions windows{.steps = ReadOptions::Steps::kept, .step_tokens = 4};
  EXPECT_EQ(read_recording(folder / ".", windows).steps.size(), 2U);
}

}  // namespace
}  // namespace evenkeel
