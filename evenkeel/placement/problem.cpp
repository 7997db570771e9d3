#include "evenkeel/placement/problem.h"

#include <utility>

namespace evenkeel {

namespace {

// rank_of [L][E].
Placement of_single_homes(const std::vector<std::vector<int>>& rank_of, int num_ranks) {
  std::vector<LayerPlacement> layers;
  for (const std::vector<int>& of_layer : rank_of) {
    std::vector<std::vector<int>> homes;
    for (int rank : of_layer) homes.push_back({rank});
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace

Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks) {
  std::vector<std::vector<int>> rank_of = clustering.cluster_of;
  for (std::size_t layer = 0; layer < rank_of.size(); ++layer)
    for (int& cluster : rank_of[layer]) cluster = ranks.rank_of[layer][static_cast<std::size_t>(cluster)];
  return of_single_homes(rank_of, num_ranks);
}

Placement placement_of(const JointSolution& solution, int num_ranks) {
  return of_single_homes(solution.rank_of_expert, num_ranks);
}

}  // namespace evenkeel
