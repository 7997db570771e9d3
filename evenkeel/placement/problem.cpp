#include "evenkeel/placement/problem.h"

#include <utility>

namespace evenkeel {

Placement placement_of(const std::vector<std::vector<int>>& rank_of_expert, int num_ranks) {
  std::vector<LayerPlacement> layers;
  for (const std::vector<int>& of_layer : rank_of_expert) {
    std::vector<std::vector<int>> homes;
    for (int rank : of_layer) homes.push_back({rank});
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
