#include "evenkeel/placement/incremental/internal/rank_matching.h"

#include <algorithm>
#include <functional>

namespace evenkeel::internal {

namespace {

// [n, n] how many experts two ranks have in common, for n consecutive ranks from `made_first` and from
// `live_first`; -1 if the two hold unequally many experts.
std::vector<int> common_of_ranks(const LayerPlacement& made, const LayerPlacement& live,
                                 std::size_t made_first, std::size_t live_first, std::size_t n) {
  std::vector<int> common(n * n, 0);
  for (std::size_t m = 0; m < n; ++m)
    for (std::size_t l = 0; l < n; ++l) {
      const auto mine = made.natives(RankId(made_first + m));
      const auto theirs = live.natives(RankId(live_first + l));
      int& count = common[m * n + l];
      if (mine.size() != theirs.size()) count = -1;
      if (count == 0)
        count = static_cast<int>(
            std::ranges::count_if(mine, [&](ExpertId e) { return std::ranges::binary_search(theirs, e); }));
    }
  return common;
}

// [nodes, nodes]: homes in common, whatever the numbers of ranks within a node.
std::vector<int> common_of_nodes(const LayerPlacement& made, const LayerPlacement& live, std::size_t nodes) {
  const auto ranks_of_node = static_cast<std::size_t>(made.num_ranks()) / nodes;
  std::vector<int> common(nodes * nodes, 0);
  for (ExpertId e : indices<ExpertId>(made.num_experts()))
    for (RankId mine : made.homes(e))
      for (RankId theirs : live.homes(e))
        ++common[mine.offset() / ranks_of_node * nodes + theirs.offset() / ranks_of_node];
  return common;
}

}  // namespace

std::vector<std::size_t> match_by_common(std::span<const int> common, std::size_t n) {
  std::vector<std::size_t> pairs;
  for (std::size_t pair = 0; pair < common.size(); ++pair)
    if (common[pair] >= 0) pairs.push_back(pair);
  std::ranges::stable_sort(pairs, std::greater{}, [&](std::size_t pair) { return common[pair]; });
  std::vector<std::size_t> live_of(n, n);
  std::vector<bool> is_used(n, false);
  for (std::size_t pair : pairs) {
    if (is_used[pair % n] || live_of[pair / n] != n) continue;
    is_used[pair % n] = true;
    live_of[pair / n] = pair % n;
  }
  return live_of;
}

LayerPlacement renumbered(const LayerPlacement& made, const LayerPlacement& live, int num_nodes) {
  const auto nodes = static_cast<std::size_t>(num_nodes);
  const auto ranks = static_cast<std::size_t>(made.num_ranks()) / nodes;
  const std::vector<std::size_t> live_node = match_by_common(common_of_nodes(made, live, nodes), nodes);
  std::vector<int> number_of(static_cast<std::size_t>(made.num_ranks()));
  for (std::size_t node = 0; node < nodes; ++node) {
    const std::size_t first = live_node[node] * ranks;
    const auto live_rank = match_by_common(common_of_ranks(made, live, node * ranks, first, ranks), ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (live_rank[rank] == ranks) return made;
      number_of[node * ranks + rank] = static_cast<int>(first + live_rank[rank]);
    }
  }
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(made.num_experts()));
  for (ExpertId e : indices<ExpertId>(made.num_experts()))
    for (RankId rank : made.homes(e)) homes[e.offset()].push_back(number_of[rank.offset()]);
  return LayerPlacement(homes, made.num_ranks());
}

}  // namespace evenkeel::internal
