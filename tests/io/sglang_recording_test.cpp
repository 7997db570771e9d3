// SGLang's recordings, saved by torch itself. The tests recompute the formulas of data/make_recordings.py.
#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using SglangRecording = InFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kMoeLayers = 3;  // layers 1, 2 and 3 of the model; layer 0 is dense
constexpr int kExperts = 6;
constexpr int kPhysical = 8;

int expert_of(int layer, int p) {
  return (layer + p) % kExperts;
}

using Loads = std::vector<std::vector<std::int64_t>>;  // [steps][layers, experts]

Loads steps_of_mode(const std::string& mode) {
  const int steps = mode == "per_token" ? 2 : 3;
  Loads all(static_cast<std::size_t>(steps), std::vector<std::int64_t>(kMoeLayers * kExperts, 0));
  for (int n = 0; n < steps; ++n)
    for (int l = 1; l <= kMoeLayers; ++l) {
      const auto load = [&](int expert) -> std::int64_t& {
        return all[static_cast<std::size_t>(n)][static_cast<std::size_t>((l - 1) * kExperts + expert)];
      };
      for (int e = 0; mode == "stat" && e < kExperts; ++e) load(e) = (7 * n + 5 * l + 3 * e) % 11;
      for (int p = 0; mode == "per_pass" && p < kPhysical; ++p)
        load(expert_of(l, p)) += (5 * n + 3 * l + p) % 7;
      for (int t = 0; mode == "per_token" && t < 3 - n; ++t)
        for (int j = 0; j < 2; ++j) ++load(expert_of(l, (3 * t + l + 5 * j + n) % kPhysical));
    }
  return all;
}

Loads step_loads(const std::string& path) {
  const Recording file = read_recording(path, {.steps = ReadOptions::Steps::kept});
  Loads all;
  for (const RoutingProfile& step : file.steps) all.emplace_back(step.loads().begin(), step.loads().end());
  return all;
}

TEST_F(SglangRecording, OfEveryModeHasForwardPassesThatAddUpWithoutDenseLayers) {
  for (const std::string mode : {"stat", "per_pass", "per_token"}) {
    SCOPED_TRACE(mode);
    const std::string path = test_data("sglang_" + mode + ".pt");
    const Recording file = read_recording(path);
    EXPECT_EQ(file.kind, "recording");
    EXPECT_EQ(file.format, "sglang");
    EXPECT_THAT(file.layers().numbers(), ElementsAre(1, 2, 3));
    EXPECT_EQ(file.is_trace(), mode == "per_token");
    EXPECT_EQ(file.profile.has_transitions(), mode == "per_token");
    const Loads steps = steps_of_mode(mode);
    EXPECT_EQ(step_loads(path), steps);
    std::vector<std::int64_t> sum(kMoeLayers * kExperts, 0);
    for (const auto& step : steps)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += step[i];
    EXPECT_THAT(file.profile.loads(), testing::ElementsAreArray(sum));
  }
}

TEST_F(SglangRecording, OfModePerTokenIsATraceOfExperts) {
  const Recording file = read_recording(test_data("sglang_per_token.pt"));
  EXPECT_THAT(file.layers().numbers(), ElementsAre(1, 2, 3));
  ASSERT_TRUE(file.trace);
  const TraceInfo& info = file.trace->info();
  EXPECT_EQ(info.num_tokens, 5);
  EXPECT_EQ(info.num_layers, kMoeLayers);
  EXPECT_EQ(info.top_k, 2);
  EXPECT_EQ(info.num_experts, kExperts);
  std::vector<std::int32_t> expected;
  for (int n = 0; n < 2; ++n)
    for (int t = 0; t < 3 - n; ++t)
      for (int l = 1; l <= kMoeLayers; ++l)
        for (int j = 0; j < 2; ++j) expected.push_back(expert_of(l, (3 * t + l + 5 * j + n) % kPhysical));
  EXPECT_EQ(ids_of(*file.trace), expected);
  EXPECT_FALSE(
      profile_in(test_data("sglang_per_token.pt"), {.count = ReadOptions::Count::loads}).has_transitions());
}

TEST_F(SglangRecording, OfPhysicalExpertsHasAsManyAsItIsTold) {
  for (const char* name : {"sglang_per_token.pt", "sglang_per_pass.pt"}) {
    const RoutingProfile told = profile_in(test_data(name), {.num_experts = 9});
    const RoutingProfile found = profile_in(test_data(name));
    EXPECT_EQ(told.num_experts(), 9) << name;
    for (int l = 0; l < kMoeLayers; ++l)
      for (int e = 0; e < 9; ++e)
        EXPECT_EQ(told.load(LayerId(l), ExpertId(e)), e < kExperts ? found.load(LayerId(l), ExpertId(e)) : 0);
    EXPECT_EQ(recording_refusal(test_data(name), {.num_experts = 5}),
              test_data(name) + ": last_physical_to_logical_map: names expert 5, outside 0..4");
  }
  EXPECT_EQ(recording_refusal<InvalidArgument>(test_data("sglang_stat.pt"), {.num_experts = 5}),
            "num_experts: 5, but the file has counts of 6 experts; allowed: 6, or leave it out");
}

TEST_F(SglangRecording, HasAPossibleNumberOfExperts) {
  for (int impossible : {-5, 0, 65537})
    EXPECT_EQ(recording_refusal<InvalidArgument>(test_data("sglang_stat.pt"), {.num_experts = impossible}),
              "num_experts: " + std::to_string(impossible) + " experts; allowed: 1..65536");
}

TEST_F(SglangRecording, OfPhysicalExpertsNeedsTheirMap) {
  EXPECT_EQ(recording_refusal(test_data("sglang_without_map.pt")),
            test_data("sglang_without_map.pt") +
                ": last_physical_to_logical_map: is missing; the records count physical experts, and only "
                "this map says which experts those are");
}

// Copies a dump of SGLang's recorder into a folder.
void copy_dump(const std::string& mode, const TempFolder& folder, const std::string& number) {
  std::filesystem::copy(test_data("sglang_" + mode + ".pt"),
                        folder / ("expert_distribution_recorder_" + number + ".pt"));
}

TEST_F(SglangRecording, OfSeveralRanksInAFolderIsAddedUp) {
  for (const char* number : {"1.5_0", "1.5_1"}) copy_dump("per_pass", folder, number);
  RoutingProfile expected = profile_in(test_data("sglang_per_pass.pt"));
  expected.add(profile_in(test_data("sglang_per_pass.pt")));
  EXPECT_EQ(profile_in(folder / "."), expected);
  EXPECT_EQ(profile_in(folder / ".", {.num_experts = 9}).num_experts(), 9);
}

// Dumps of mode stat are read one after the other. If two per-pass dumps have the same pass of a rank, that
// is an error.
TEST_F(SglangRecording, OfSeveralDumpsKeepsForwardPassesApart) {
  for (const char* number : {"1.5", "2.5"}) copy_dump("stat", folder, number);
  Loads twice = steps_of_mode("stat");
  for (const auto& step : steps_of_mode("stat")) twice.push_back(step);
  EXPECT_EQ(step_loads(folder / "."), twice);
  const ReadOptions kept{.steps = ReadOptions::Steps::kept};
  copy_dump("per_pass", folder, "3.5");
  EXPECT_THAT(recording_refusal(folder / ".", kept), HasSubstr("the files were recorded in two modes"));
  const TempFolder runs;
  for (const char* number : {"1.5_0", "2.5_0"}) copy_dump("per_pass", runs, number);
  EXPECT_THAT(recording_refusal(runs / ".", kept),
              AllOf(HasSubstr("records[0]: is forward pass 10 of rank 0, but so is "),
                    HasSubstr("the two are from different runs; read each run separately")));
}

TEST(TorchFile, MayHoldABareMatrixOfCountsWithAnyStrides) {
  const Recording file = read_recording(test_data("counts.pt"), {.axes = "layers,experts"});
  EXPECT_EQ(file.kind, "counts");
  EXPECT_EQ(file.profile, RoutingProfile(2, 3, {0, 2, 4, 1, 3, 5}, {}));
}

TEST(TorchFile, MayHoldAveragesOfCounts) {
  const Recording halves = read_recording(test_data("halves.pt"), {.axes = "layers,experts"});
  EXPECT_THAT(halves.profile.loads(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(halves.notes, testing::Contains(HasSubstr("scaled by 2^1")));
}

TEST(TorchFile, RefusesWhatIsNoRecording) {
  EXPECT_EQ(recording_refusal(test_data("checkpoint.pt")),
            test_data("checkpoint.pt") +
                ": data.pkl: is a dict without 'logical_count', 'records' or a tensor of counts: not a "
                "recording of SGLang");
}

TEST(TorchFile, MayRepeatItsElementsByStridesOfZero) {
  const RoutingProfile profile = profile_in(repository_file("tests/fuzz/corpus/recording/expanded"));
  EXPECT_EQ(profile.num_layers(), 50);
  EXPECT_THAT(profile.loads(LayerId(49)), ElementsAre(0, 1, 2, 3));
}

TEST(TorchFile, AsksForNoMoreThanItHas) {
  const std::pair<const char*, const char*> files[] = {
      {"bomb",
       "a/byteorder: is compressed, encrypted or larger than the file, which torch.save never writes"},
      {"big-endian", "a/byteorder: is not little-endian; save the file again on a little-endian machine"},
      {"expanded-too-far",
       "logical_count: needs far more memory than the size of the file allows; is the file damaged?"},
      {"past-end", "a/data/0: has 64 bytes, but should have 12 elements of int64"},
      {"claims-more", "a/data/0: has 64 bytes, but should have 1073741824 elements of int64"},
      {"wrong-type", "a/data/0: has 64 bytes, but should have 8 elements of float32"},
      {"longer", "a/data/0: has 72 bytes, but should have 8 elements of int64"},
      {"other-longer", "a/data/1: has 64 bytes, but should have 1 elements of int64"},
      {"other-version", "a/version: is not a number in 1..10, the versions of torch.save"},
      {"stride-overflow", "logical_count: reaches element 8589934588 of a/data/0, which has 8 elements"},
      {"no-storage", "a/data/7: is not in the archive"},
      {"negative", "logical_count: element 1 is -1; a load is 0 or more"},
      {"empty-shape",
       "logical_count: shape [0, 4] ([layers, experts]); allowed: 1..65536 layers, 1..65536 experts"},
  };
  for (const auto& [name, message] : files) {
    const std::string path = repository_file("tests/fuzz/corpus/recording/") + name;
    EXPECT_EQ(recording_refusal(path), path + ": " + message);
  }
}

TEST(TorchFile, CutAtAnyByteIsRefused) {
  for (const char* name : {"sglang_stat.pt", "sglang_per_token.pt"}) {
    const std::string whole = read_text(test_data(name));
    for (std::size_t size = 1; size < whole.size(); ++size) {
      SCOPED_TRACE(testing::Message() << name << " cut at " << size);
      EXPECT_THROW(read_recording(source_of(std::string_view(whole).substr(0, size))), ParseError);
    }
  }
}

}  // namespace
}  // namespace evenkeel
