// Permuting holds only headers and one buffer in memory, whatever the sizes of tensors.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "evenkeel/io/permute_checkpoint.h"
#include "tests/io/counted_memory.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

constexpr int experts = 64;
constexpr std::int64_t stacked_bytes = std::int64_t{64} << 20;

// A sparse file: a header with one stacked tensor and many small ones, and a hole for the data.
void write_sparse(const std::string& path, int layers) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::int64_t at = 0;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, std::int64_t bytes) {
    header[name] = {{"dtype", "U8"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  };
  for (int l = 0; l < layers; ++l) {
    const std::string module = "model.layers." + std::to_string(l) + ".mlp.";
    if (l == 0) {
      add(module + "experts.down_proj", {experts, stacked_bytes / experts}, stacked_bytes);
    } else {
      for (int e = 0; e < experts; ++e)
        add(module + "experts." + std::to_string(e) + ".down_proj.weight", {16}, 16);
    }
    add(module + "gate.weight", {experts, 2}, experts * 2);
  }
  const std::string text = safetensors_text(header.dump());
  write_text(path, text);
  std::filesystem::resize_file(path, text.size() + static_cast<std::uintmax_t>(at));
}

TEST(PermuteMemory, IsABufferAndTheHeadersForTensorsOfAnySize) {
  constexpr int layers = 100;
  TempFolder folder;
  std::filesystem::create_directories(folder / "in");
  write_text(folder / "in/config.json",
             R"({"model_type": "olmoe", "num_hidden_layers": 100, "num_experts": 64})");
  write_sparse(folder / "in/model.safetensors", layers);
  std::vector<std::vector<int>> homes;
  for (int e = 0; e < experts; ++e) homes.push_back({experts - 1 - e});
  const Placement reversed(std::vector<LayerPlacement>(layers, LayerPlacement(homes, experts)));
  const PeakMemory peak;
  const PermutedCheckpoint done = permute_checkpoint(folder / "in", reversed, folder / "out");
  EXPECT_EQ(done.tensors_permuted, layers + 1);
  EXPECT_EQ(done.tensors_renamed, (layers - 1) * experts);
  // The limit allows a buffer of 4 MiB and, for each of 6,438 tensors, the tensor's header as JSON and its
  // position.
  EXPECT_LT(peak.bytes(), (4 << 20) + 6438 * 3000);
  EXPECT_LT(peak.bytes(), stacked_bytes / 2);
}

}  // namespace
}  // namespace evenkeel
