#include "evenkeel/placement/problem.h"

#include <utility>

namespace evenkeel {

Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks) {
  std::vector<LayerPlacement> layers;
  for (std::size_t layer = 0; layer < clustering.cluster_of.size(); ++layer) {
    std::vector<std::vector<int>> homes;
    for (int cluster : clustering.cluster_of[layer])
      homes.push_back({ranks.rank_of[layer][static_cast<std::size_t>(cluster)]});
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
