// Files made by numpy and the safetensors package (tests/io/data/make_files.py), compared with the formulas
// of that script.
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

constexpr int kTokens = 11;
constexpr int kLayers = 3;
constexpr int kTopK = 2;

std::int32_t formula_id(int t, int l, int j) {
  return (7 * t + 3 * l + 5 * j) % 13;
}
float formula_weight(int t, int l, int j) {
  return static_cast<float>(1 + t + 2 * l + 4 * j) / 64;
}

// Expects the formula's ids, and no expert where `absent(t, l, j)` is true.
void expect_formula(TraceReader& trace, const std::string& name, bool (*absent)(int, int, int) = nullptr) {
  const TraceInfo& info = trace.info();
  ASSERT_EQ(info.num_tokens, kTokens) << name;
  ASSERT_EQ(info.num_layers, kLayers) << name;
  ASSERT_EQ(info.top_k, kTopK) << name;
  TraceBatches batches(trace);
  ASSERT_TRUE(batches.next());
  std::size_t at = 0;
  for (int t = 0; t < kTokens; ++t)
    for (int l = 0; l < kLayers; ++l)
      for (int j = 0; j < kTopK; ++j, ++at) {
        const bool left_out = absent != nullptr && absent(t, l, j);
        EXPECT_EQ(batches.ids()[at], left_out ? no_expert : formula_id(t, l, j)) << name;
        if (info.has_weights) {
          EXPECT_EQ(batches.weights()[at], formula_weight(t, l, j)) << name;
        }
      }
}

TEST(NumpyFiles, OfEveryTypeVersionAndContainerGiveTheSameTrace) {
  for (const char* type :
       {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "version2", "version3"}) {
    const auto trace = open_trace(test_data(std::string("ids_") + type + ".npy"));
    expect_formula(*trace, type);
    EXPECT_EQ(trace->info().num_experts, 13) << type;
    EXPECT_FALSE(trace->info().has_weights) << type;
    EXPECT_TRUE(trace->info().sequence_offsets.empty()) << type;
  }
  // The offsets in deflated.npz lack the end of the last sequence.
  for (const auto& [name, experts] :
       {std::pair("stored.npz", 13), std::pair("deflated.npz", 64), std::pair("trace.safetensors", 16)}) {
    const auto trace = open_trace(test_data(name));
    expect_formula(*trace, name);
    EXPECT_TRUE(trace->info().has_weights) << name;
    EXPECT_EQ(trace->info().num_experts, experts) << name;
    EXPECT_EQ(trace->info().sequence_offsets, (std::vector<std::int64_t>{0, 4, 4, 11})) << name;
  }
  expect_formula(*open_trace(test_data("routed_experts.npz")), "routed_experts");
}

TEST(NumpyFiles, OfTwoDimensionsAreOneLayer) {
  const auto trace = open_trace(test_data("one_layer.npy"));
  EXPECT_EQ(trace->info().num_layers, 1);
  const LayerRouting routing = trace->read_layer(LayerId(0), {0, kTokens});
  for (int t = 0; t < kTokens; ++t)
    EXPECT_EQ(routing.ids[static_cast<std::size_t>(t * kTopK + 1)], formula_id(t, 0, 1));
}

TEST(NumpyFiles, MayLeaveAssignmentsOut) {
  const auto absent = [](int t, int l, int j) { return (t == 2 && l == 1) || (t == 5 && l == 0 && j == 1); };
  expect_formula(*open_trace(test_data("absent.npy")), "absent", absent);
}

TEST(NumpyFiles, ThatAreNoTraceSayWhy) {
  const std::pair<const char*, const char*> others[] = {
      {"floats.npy", "is float32; expert ids are integers"},
      {"four_dimensions.npy",
       "shape [1, 11, 3, 2] is neither [tokens, layers, k] nor, for one layer, [tokens, k]"},
      {"profile.safetensors", "format: is evenkeel.profile.v1, not evenkeel.trace.v1"}};
  for (const auto& [name, why] : others)
    EXPECT_EQ(message_of<ParseError>([&] { open_trace(test_data(name)); }), test_data(name) + ": " + why);
}

}  // namespace
}  // namespace evenkeel
