#include "evenkeel/io/convert.h"

#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/placement_file.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

RoutingProfile profile_of(const std::string& path) {
  return profile_trace(*open_trace(path));
}

// Converts files in the folder, or at absolute paths, to files in the folder.
class Convert : public InFolder {
 protected:
  Converted convert(const std::string& in, const std::string& out, const ConvertOptions& options = {}) {
    return convert_file(folder / in, folder / out, options);
  }
  template <class Expected = InvalidArgument>
  std::string refusal(const std::string& in, const std::string& out, const ConvertOptions& options = {}) {
    return message_of<Expected>([&] { convert(in, out, options); });
  }
  RoutingProfile profile(const std::string& name) const { return read_profile(folder / name); }
};

TEST_F(Convert, TakesATraceThroughEveryFormatWithoutChange) {
  const std::string first = test_data("deflated.npz");
  convert(first, "1.safetensors");
  convert("1.safetensors", "2.npz");
  convert("2.npz", "3.npy");
  const Converted last =
      convert("3.npy", "4.safetensors", {.reading = {.num_experts = 64, .axes = "tokens,layers,k"}});
  EXPECT_EQ(last.what, "trace");
  EXPECT_EQ(last.from, "npy");
  EXPECT_EQ(last.to, "safetensors");
  for (const char* name : {"1.safetensors", "2.npz", "4.safetensors"})
    EXPECT_EQ(profile_of(folder / name), profile_of(first)) << name;
  EXPECT_EQ(open_trace(folder / "2.npz")->read_layer(LayerId(1), {0, 11}).weights,
            open_trace(first)->read_layer(LayerId(1), {0, 11}).weights);
}

TEST_F(Convert, MayWriteOverItsOwnInput) {
  std::filesystem::copy(test_data("stored.npz"), folder / "t.npz");
  convert("t.npz", "t.npz");
  EXPECT_EQ(profile_of(folder / "t.npz"), profile_of(test_data("stored.npz")));
}

TEST_F(Convert, TakesAProfileThroughEveryFormatWithoutChange) {
  std::string from = test_data("profile.safetensors");
  for (const std::string name : {"1.json", "2.npz", "3.safetensors"})
    EXPECT_EQ(convert(std::exchange(from, name), name).what, "profile");
  EXPECT_EQ(profile(from), read_profile(test_data("profile.safetensors")));
}

TEST_F(Convert, MakesLoadsAProfileOfOneLayer) {
  write_text(folder / "loads.json", R"({"loads": [3, 4]})");
  write_text(folder / "counts.json", R"({"counts": [[1, 2], [3, 4]]})");
  EXPECT_EQ(convert("loads.json", "l.safetensors").what, "loads");
  EXPECT_EQ(profile("l.safetensors"), RoutingProfile(1, 2, {3, 4}, {}));
  convert("counts.json", "c.npz");
  EXPECT_EQ(profile("c.npz"), RoutingProfile(1, 2, {4, 6}, {}));
  convert("counts.json", "again.json");
  EXPECT_EQ(read_text(folder / "again.json"), "{\"counts\":[[1,2],[3,4]]}\n");
  convert("loads.json", "again.json");
  EXPECT_EQ(read_text(folder / "again.json"), "{\"loads\":[3,4]}\n");
}

TEST_F(Convert, TakesAPlacementThroughEverySystemWithoutChange) {
  write_placement({.placement = Placement::contiguous(2, 6, 3)}, folder / "a.json");
  std::string from = "a.json";
  for (const auto& [format, name] :
       {std::pair{PlacementFormat::sglang, "s.json"}, std::pair{PlacementFormat::trtllm, "t.yaml"},
        std::pair{PlacementFormat::vllm, "v.jsonl"}, std::pair{PlacementFormat::vllm_ascend, "w.json"},
        std::pair{PlacementFormat::evenkeel, "e.json"}}) {
    const ConvertOptions options{.to = format, .placement = {.layers = {{0, 1}}, .num_ranks = 3}};
    EXPECT_EQ(convert(std::exchange(from, name), name, options).what, "placement");
  }
  for (int layer : {0, 1})
    EXPECT_EQ(read_placement(folder / from).placement.layer(layer), LayerPlacement::contiguous(6, 3));
  EXPECT_EQ(convert("a.json", "b.json").what, "placement");
  EXPECT_EQ(read_text(folder / "a.json"), read_text(folder / "b.json"));
}

TEST_F(Convert, KeepsWhatTheYamlSaysBesideItsRows) {
  const std::string yaml =
      "initial_global_assignments:\n  3: [1, 0]\n  5: [0, 1]\nlayer_updates_per_iter: 4\nnum_slots: 2\n";
  write_text(folder / "t.yaml", yaml);
  const ConvertOptions trtllm{.to = PlacementFormat::trtllm, .placement = {.num_ranks = 2}};
  convert("t.yaml", "again.yaml", trtllm);
  EXPECT_EQ(read_text(folder / "again.yaml"), yaml);
  convert("t.yaml", "ours.json", {.placement = {.num_ranks = 2}});
  convert("ours.json", "back.yaml", trtllm);
  EXPECT_EQ(read_text(folder / "back.yaml"), yaml);
}

TEST_F(Convert, OfRoutingRefusesWhatIsForPlacements) {
  for (const std::string& in :
       {test_data("stored.npz"), test_data("trtllm_statistics"), test_data("sglang_stat.pt")}) {
    const std::string why =
        ": applies only to placements, and " + in + " is not a placement; allowed: to leave it out";
    EXPECT_EQ(refusal(in, "o.npz", {.placement = {.num_hidden_layers = 6}}), "num_hidden_layers" + why);
    EXPECT_EQ(refusal(in, "o.npz", {.placement = {.layer_updates_per_iter = 0}}),
              "layer_updates_per_iter" + why);
    EXPECT_EQ(refusal(in, "o.npz", {.placement = {.num_ranks = 2}}), "ranks" + why);
    for (const auto format : {PlacementFormat::trtllm, PlacementFormat::sglang})
      EXPECT_EQ(refusal(in, "o.npz", {.to = format}),
                "to: " + std::string(name_of(format)) + " is a placement format, but " + in +
                    " is not a placement; allowed: to leave it out, or a placement as input");
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(Convert, OfRoutingTakesNumbersThatItsFileDoesNotSay) {
  EXPECT_EQ(refusal(test_data("trtllm_statistics"), "o.npz", {.placement = {.layers = {{1, 2}}}}),
            "moe_layers: names layers 1-2, but the file has layers 3-4; allowed: 3-4, or leave it out");
  write_text(folder / "c.csv", "e0,e1\n1,2\n3,4\n");
  EXPECT_EQ(
      refusal("c.csv", "o.npz", {.placement = {.layers = {{1}}}}),
      "moe_layers: names layers 1, but the file has 2 layers without numbers; allowed: 2 layer numbers");
  EXPECT_EQ(convert("c.csv", "o.npz", {.placement = {.layers = {{1, 6}}}}).layers, LayerNumbers({1, 6}));
  EXPECT_EQ(profile("o.npz").layers(), LayerNumbers({1, 6}));
}

TEST_F(Convert, OfPlacementsRefusesWhatNeitherFormatKnows) {
  const std::string in = folder / "a.json", out = "b.json";
  write_placement({.placement = Placement::contiguous(2, 4, 2).numbered(LayerNumbers({3, 5}))}, in);
  using enum PlacementFormat;
  EXPECT_EQ(refusal(in, out, {.reading = {.axes = "counts"}}),
            "as: applies only to arrays, and " + in + " is a placement; allowed: to leave it out");
  EXPECT_EQ(refusal(in, out, {.placement = {.num_hidden_layers = 6}}),
            "num_hidden_layers: applies only to the formats sglang and trtllm, not to evenkeel; allowed: to "
            "leave it out");
  EXPECT_EQ(refusal(in, out, {.to = sglang, .placement = {.layer_updates_per_iter = 2}}),
            "layer_updates_per_iter: applies only to format trtllm, not to sglang; allowed: to leave it out");
  EXPECT_EQ(refusal(in, out, {.placement = {.num_ranks = 4}}),
            "ranks: 4, but " + in + " is for 2 ranks; allowed: 2, or a placement for 4");
  EXPECT_EQ(refusal(in, out, {.reading = {.num_experts = 8}}),
            "num_experts: 8, but " + in + " is for 4 experts; allowed: 4, or a placement for 8");
  EXPECT_EQ(refusal(in, out, {.to = sglang, .placement = {.layers = {{3, 4}}}}),
            "moe_layers: names layers 3-4, but " + in + " has layers 3,5; allowed: 3,5, or leave it out");
  EXPECT_EQ(refusal(in, "s", {.to = sglang}),
            folder / "s" +
                ": sglang loads only files whose name ends in .json; allowed: a name that ends in .json");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.json"});
}

// Bytes that this process has read from files so far.
std::int64_t bytes_read() {
  const std::string text = read_text("/proc/self/io");
  return std::stoll(text.substr(text.find("rchar: ") + 7));
}

TEST_F(Convert, ReadsAFileOnce) {
  std::string rows;
  for (int e = 0; e < 60000; ++e) {
    if (e > 0) rows += ',' + std::string(32, ' ');
    rows += std::to_string(1000 + e % 10);
  }
  for (const std::string& text : {"{\"counts\": [[" + rows + "]]}", "{\"loads\": [" + rows + "]}"}) {
    write_text(folder / "in.json", text);
    const std::int64_t before = bytes_read();
    convert("in.json", "again.json");
    // Besides the one full read, only the first MiB is read again, to recognise the file.
    EXPECT_LT(bytes_read() - before, std::ssize(text) + (std::int64_t{1} << 20) + 65536) << text.substr(0, 9);
  }
}

TEST_F(Convert, SaysWhichExtensionsFit) {
  EXPECT_EQ(refusal(test_data("stored.npz"), "t.txt"),
            "output: the extension of '" + folder / "t.txt" +
                "' names no format; allowed: .safetensors, .npz, .npy, .json");
  EXPECT_EQ(refusal(test_data("stored.npz"), "t.json"),
            "output: a trace cannot be written as json; allowed: .safetensors, .npz, .npy");
  EXPECT_EQ(refusal(test_data("profile.safetensors"), "p.npy"),
            "output: a profile cannot be written as npy; allowed: .safetensors, .npz, .json");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace evenkeel
