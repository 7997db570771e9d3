#include "evenkeel/io/convert.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/placement_file.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

RoutingProfile profile_of(const std::string& path) {
  return profile_trace(*open_trace(path));
}

TEST(Convert, TakesATraceThroughEveryFormatWithoutChange) {
  TempFolder folder;
  convert_file(test_data("deflated.npz"), folder / "1.safetensors");
  convert_file(folder / "1.safetensors", folder / "2.npz");
  convert_file(folder / "2.npz", folder / "3.npy");
  const Converted last = convert_file(folder / "3.npy", folder / "4.safetensors",
                                      {.reading = {.num_experts = 64, .axes = "tokens,layers,k"}});
  EXPECT_EQ(last.what, "trace");
  EXPECT_EQ(last.from, "npy");
  EXPECT_EQ(last.to, "safetensors");
  const RoutingProfile first = profile_of(test_data("deflated.npz"));
  for (const char* name : {"1.safetensors", "2.npz", "4.safetensors"})
    EXPECT_EQ(profile_of(folder / name), first) << name;
  const LayerRouting routing = open_trace(folder / "2.npz")->read_layer(LayerId(1), {0, 11});
  EXPECT_EQ(routing.weights, open_trace(test_data("deflated.npz"))->read_layer(LayerId(1), {0, 11}).weights);
}

TEST(Convert, MayWriteOverItsOwnInput) {
  TempFolder folder;
  std::filesystem::copy(test_data("stored.npz"), folder / "t.npz");
  const RoutingProfile before = profile_of(folder / "t.npz");
  convert_file(folder / "t.npz", folder / "t.npz");
  EXPECT_EQ(profile_of(folder / "t.npz"), before);
}

TEST(Convert, TakesAProfileThroughEveryFormatWithoutChange) {
  TempFolder folder;
  EXPECT_EQ(convert_file(test_data("profile.safetensors"), folder / "1.json").what, "profile");
  EXPECT_EQ(convert_file(folder / "1.json", folder / "2.npz").what, "profile");
  EXPECT_EQ(convert_file(folder / "2.npz", folder / "3.safetensors").what, "profile");
  EXPECT_EQ(read_profile(folder / "3.safetensors"), read_profile(test_data("profile.safetensors")));
}

TEST(Convert, MakesLoadsAProfileOfOneLayer) {
  TempFolder folder;
  write_text(folder / "loads.json", R"({"loads": [3, 4]})");
  write_text(folder / "counts.json", R"({"counts": [[1, 2], [3, 4]]})");
  EXPECT_EQ(convert_file(folder / "loads.json", folder / "l.safetensors").what, "loads");
  EXPECT_EQ(read_profile(folder / "l.safetensors"), RoutingProfile(1, 2, {3, 4}, {}));
  convert_file(folder / "counts.json", folder / "c.npz");
  EXPECT_EQ(read_profile(folder / "c.npz"), RoutingProfile(1, 2, {4, 6}, {}));
  convert_file(folder / "counts.json", folder / "again.json");
  EXPECT_EQ(read_text(folder / "again.json"), "{\"counts\":[[1,2],[3,4]]}\n");
  convert_file(folder / "loads.json", folder / "again.json");
  EXPECT_EQ(read_text(folder / "again.json"), "{\"loads\":[3,4]}\n");
}

TEST(Convert, RewritesAPlacement) {
  TempFolder folder;
  write_placement(
      {.placement = Placement::contiguous(2, 5, 2), .objective = {}, .bound = {}, .provenance = {}},
      folder / "a.json");
  EXPECT_EQ(convert_file(folder / "a.json", folder / "b.json").what, "placement");
  EXPECT_EQ(read_text(folder / "a.json"), read_text(folder / "b.json"));
}

TEST(Convert, MakesOtherSystemsRecordingsTracesAndProfiles) {
  TempFolder folder;
  const Converted trace = convert_file(test_data("sglang_per_token.pt"), folder / "t.safetensors");
  EXPECT_EQ(trace.what, "recording");
  EXPECT_EQ(trace.from, "sglang");
  EXPECT_EQ(trace.layers, LayerNumbers({1, 2, 3}));
  EXPECT_EQ(profile_of(folder / "t.safetensors"), profile_in(test_data("sglang_per_token.pt")));
  EXPECT_EQ(convert_file(test_data("sglang_stat.pt"), folder / "s.json").what, "recording");
  EXPECT_EQ(read_profile(folder / "s.json"), profile_in(test_data("sglang_stat.pt")));
  EXPECT_EQ(convert_file(test_data("trtllm_statistics"), folder / "x.npz").what, "statistics");
  EXPECT_EQ(read_profile(folder / "x.npz"), profile_in(test_data("trtllm_statistics")));
}

TEST(Convert, TakesAPlacementThroughEverySystemWithoutChange) {
  TempFolder folder;
  write_placement(
      {.placement = Placement::contiguous(2, 6, 3), .objective = {}, .bound = {}, .provenance = {}},
      folder / "a.json");
  std::string from = folder / "a.json";
  for (const auto& [format, name] :
       {std::pair{PlacementFormat::sglang, "s.json"}, std::pair{PlacementFormat::trtllm, "t.yaml"},
        std::pair{PlacementFormat::vllm, "v.jsonl"}, std::pair{PlacementFormat::vllm_ascend, "w.json"},
        std::pair{PlacementFormat::evenkeel, "e.json"}}) {
    EXPECT_EQ(
        convert_file(from, folder / name, {.to = format, .placement = {.layers = {{0, 1}}, .num_ranks = 3}})
            .what,
        "placement");
    from = folder / name;
  }
  for (int layer : {0, 1})
    EXPECT_EQ(read_placement(from).placement.layer(layer), LayerPlacement::contiguous(6, 3));
}

TEST(Convert, KeepsWhatTheYamlSaysBesideItsRows) {
  TempFolder folder;
  const std::string yaml =
      "initial_global_assignments:\n  3: [1, 0]\n  5: [0, 1]\nlayer_updates_per_iter: 4\nnum_slots: 2\n";
  write_text(folder / "t.yaml", yaml);
  const ConvertOptions trtllm{.to = PlacementFormat::trtllm, .placement = {.num_ranks = 2}};
  convert_file(folder / "t.yaml", folder / "again.yaml", trtllm);
  EXPECT_EQ(read_text(folder / "again.yaml"), yaml);
  convert_file(folder / "t.yaml", folder / "ours.json", {.placement = {.num_ranks = 2}});
  convert_file(folder / "ours.json", folder / "back.yaml", trtllm);
  EXPECT_EQ(read_text(folder / "back.yaml"), yaml);
}

TEST(Convert, WritesOnlyPlacementsForOtherSystems) {
  TempFolder folder;
  const std::string in = test_data("stored.npz");
  EXPECT_EQ(
      message_of<InvalidArgument>(
          [&] { convert_file(in, folder / "t.json", {.to = PlacementFormat::sglang}); }),
      "to: sglang is a format of placements, and " + in + " is none; allowed: a placement, or leave it out");
  write_placement(
      {.placement = Placement::contiguous(1, 2, 2), .objective = {}, .bound = {}, .provenance = {}},
      folder / "a.json");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { convert_file(folder / "a.json", folder / "s", {.to = PlacementFormat::sglang}); }),
            (folder / "s") + ": sglang loads no file of that name; allowed: a name that ends in .json");
}

std::string convert_refusal(const std::string& in, const std::string& out, const ConvertOptions& options) {
  return message_of<InvalidArgument>([&] { convert_file(in, out, options); });
}

TEST(Convert, OfRoutingRefusesWhatIsForPlacements) {
  TempFolder folder;
  const std::string out = folder / "o.npz";
  for (const std::string& in :
       {test_data("stored.npz"), test_data("trtllm_statistics"), test_data("sglang_stat.pt")}) {
    const std::string why = ": is for placements, and " + in + " is none; allowed: to leave it out";
    EXPECT_EQ(convert_refusal(in, out, {.placement = {.num_hidden_layers = 6}}), "num_hidden_layers" + why);
    EXPECT_EQ(convert_refusal(in, out, {.placement = {.layer_updates_per_iter = 0}}),
              "layer_updates_per_iter" + why);
    EXPECT_EQ(convert_refusal(in, out, {.placement = {.num_ranks = 2}}), "ranks" + why);
    EXPECT_EQ(convert_refusal(in, out, {.to = PlacementFormat::trtllm}),
              "to: trtllm is a format of placements, and " + in +
                  " is none; allowed: a placement, or leave it out");
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(Convert, OfRoutingTakesNumbersThatItsFileDoesNotSay) {
  TempFolder folder;
  EXPECT_EQ(
      convert_refusal(test_data("trtllm_statistics"), folder / "o.npz", {.placement = {.layers = {{1, 2}}}}),
      "moe_layers: names layers 1-2, but the file has layers 3-4; allowed: 3-4, or leave it out");
  write_text(folder / "c.csv", "e0,e1\n1,2\n3,4\n");
  EXPECT_EQ(convert_refusal(folder / "c.csv", folder / "o.npz", {.placement = {.layers = {{1}}}}),
            "moe_layers: names layers 1, but the file has 2 layers without numbers; allowed: 2 numbers");
  const Converted done =
      convert_file(folder / "c.csv", folder / "o.npz", {.placement = {.layers = {{1, 6}}}});
  EXPECT_EQ(done.layers, LayerNumbers({1, 6}));
  EXPECT_EQ(read_profile(folder / "o.npz").layers(), LayerNumbers({1, 6}));
}

TEST(Convert, OfRoutingRefusesToTakeATraceForCountsAndCountsForATrace) {
  TempFolder folder;
  EXPECT_EQ(convert_refusal(test_data("stored.npz"), folder / "o.npz", {.reading = {.axes = "counts"}}),
            "as: counts, but the file has the tokens of a trace; allowed: to leave it out");
  EXPECT_EQ(convert_refusal(test_data("trtllm_statistics"), folder / "o.npz", {.reading = {.axes = "trace"}}),
            "as: trace, but the file has counts; allowed: to leave it out");
  EXPECT_EQ(convert_file(test_data("stored.npz"), folder / "o.npz", {.reading = {.axes = "trace"}}).what,
            "trace");
}

TEST(Convert, OfPlacementsRefusesWhatNeitherFormatKnows) {
  TempFolder folder;
  const std::string in = folder / "a.json";
  const std::string out = folder / "b.json";
  write_placement({.placement = Placement::contiguous(2, 4, 2).numbered(LayerNumbers({3, 5}))}, in);
  using enum PlacementFormat;
  EXPECT_EQ(convert_refusal(in, out, {.reading = {.axes = "counts"}}),
            "as: is for arrays, and " + in + " is a placement; allowed: to leave it out");
  EXPECT_EQ(
      convert_refusal(in, out, {.placement = {.num_hidden_layers = 6}}),
      "num_hidden_layers: is for formats that count the model's layers, sglang and trtllm; evenkeel does "
      "not; allowed: to leave it out");
  EXPECT_EQ(convert_refusal(in, out, {.to = sglang, .placement = {.layer_updates_per_iter = 2}}),
            "layer_updates_per_iter: is for trtllm, not for sglang; allowed: to leave it out");
  EXPECT_EQ(convert_refusal(in, out, {.placement = {.num_ranks = 4}}),
            "ranks: 4, but " + in + " is for 2 ranks; allowed: 2, or a placement for 4");
  EXPECT_EQ(convert_refusal(in, out, {.reading = {.num_experts = 8}}),
            "num_experts: 8, but " + in + " is for 4 experts; allowed: 4, or a placement for 8");
  EXPECT_EQ(convert_refusal(in, out, {.to = sglang, .placement = {.layers = {{3, 4}}}}),
            "moe_layers: names layers 3-4, but " + in + " has layers 3,5; allowed: 3,5, or leave it out");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.json"});
}

// Bytes that this process has read from files so far.
std::int64_t bytes_read() {
  const std::string text = read_text("/proc/self/io");
  return std::stoll(text.substr(text.find("rchar: ") + 7));
}

TEST(Convert, ReadsAFileOnce) {
  TempFolder folder;
  std::string rows;
  for (int e = 0; e < 60000; ++e) {
    if (e > 0) rows += ',' + std::string(32, ' ');
    rows += std::to_string(1000 + e % 10);
  }
  write_text(folder / "step.json", "{\"counts\": [[" + rows + "]]}");
  write_text(folder / "loads.json", "{\"loads\": [" + rows + "]}");
  for (const char* name : {"step.json", "loads.json"}) {
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder / name));
    const std::int64_t before = bytes_read();
    convert_file(folder / name, folder / "again.json");
    // Beside the whole, the first MiB says what the file is.
    EXPECT_LT(bytes_read() - before, size + (std::int64_t{1} << 20) + 65536) << name << " has " << size;
  }
}

TEST(Convert, SaysWhichExtensionsFit) {
  TempFolder folder;
  const auto refused = [&](const std::string& in, const char* out) {
    return convert_refusal(in, folder / out, {});
  };
  EXPECT_EQ(refused(test_data("stored.npz"), "t.txt"),
            "output: the extension of '" + (folder / "t.txt") +
                "' names no format; allowed: .safetensors, .npz, .npy, .json");
  EXPECT_EQ(refused(test_data("stored.npz"), "t.json"),
            "output: a trace cannot be written as json; allowed: .safetensors, .npz, .npy");
  EXPECT_EQ(refused(test_data("profile.safetensors"), "p.npy"),
            "output: a profile cannot be written as npy; allowed: .safetensors, .npz, .json");
  EXPECT_TRUE(folder.names().empty());
}

TEST(Convert, OfSomethingElseSaysWhatItIsNot) {
  TempFolder folder;
  write_text(folder / "other.json", "{\"a\": 1}");
  EXPECT_EQ(message_of<ParseError>([&] { convert_file(folder / "other.json", folder / "o.json"); }),
            (folder / "other.json") + ": is JSON, but neither a placement nor a profile, loads or counts");
  EXPECT_EQ(message_of<ParseError>([&] { convert_file(folder / "none.npz", folder / "o.npz"); }),
            (folder / "none.npz") + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace evenkeel
