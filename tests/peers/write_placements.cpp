// Writes one placement in every format, for readers that are not ours: write_placements FOLDER.
#include <cstdio>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/placement_format.h"

namespace {

using evenkeel::LayerPlacement;
using evenkeel::PlacementFormat;

// 6 experts on 4 ranks, two places on each: in layer l, experts 0..5 begin at rank l, and experts l and l + 1
// have a copy two ranks further on.
LayerPlacement layer(int l) {
  std::vector<std::vector<int>> homes;
  for (int e = 0; e < 6; ++e) homes.push_back({(e + l) % 4});
  std::vector<int> places(4, 0);
  for (const auto& of_expert : homes) ++places[static_cast<std::size_t>(of_expert.front())];
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t e = 0; places[static_cast<std::size_t>(rank)] < 2 && e < homes.size(); ++e) {
      if (homes[e].front() == rank || homes[e].size() > 1) continue;
      homes[e].push_back(rank);
      ++places[static_cast<std::size_t>(rank)];
    }
  }
  return LayerPlacement(homes, 4);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string folder = std::string(arguments[1]) + "/";
  const evenkeel::PlacementFile file{.placement = evenkeel::Placement({layer(0), layer(1), layer(2)}),
                                     .objective = {},
                                     .bound = {},
                                     .provenance = {}};
  const evenkeel::PlacementFormatOptions options{.layers = {{1, 3, 4}}, .num_hidden_layers = 6};
  try {
    write_placement_as(PlacementFormat::evenkeel, file, options, folder + "evenkeel.json");
    write_placement_as(PlacementFormat::sglang, file, options, folder + "sglang.json");
    write_placement_as(PlacementFormat::vllm, file, options, folder + "vllm.jsonl");
    write_placement_as(PlacementFormat::vllm_ascend, file, options, folder + "vllm_ascend.json");
    write_placement_as(PlacementFormat::trtllm, file, options, folder + "trtllm.yaml");
  } catch (const evenkeel::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
