#include "evenkeel/placement/ranks/internal/rank_program.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel::internal {

namespace {

constexpr double kForbidden = std::numeric_limits<double>::infinity();

std::vector<Ranks> permutations(int P) {
  std::vector<Ranks> all;
  Ranks ranks(static_cast<std::size_t>(P));
  std::iota(ranks.begin(), ranks.end(), 0);
  do {
    all.push_back(ranks);
  } while (std::next_permutation(ranks.begin(), ranks.end()));
  return all;
}

bool allowed(const RankRule& rule, std::size_t layer, const Ranks& ranks) {
  for (std::size_t c = 0; c < ranks.size(); ++c)
    if (!rule.fits(layer, c, static_cast<std::size_t>(ranks[c]))) return false;
  return true;
}

}  // namespace

std::vector<Ranks> best_ranks(const ClusterTraffic& traffic, const RankRule& rule, std::size_t num_layers) {
  const std::vector<Ranks> ways = permutations(traffic.num_ranks());
  std::vector<std::vector<double>> least(num_layers, std::vector<double>(ways.size(), kForbidden));
  std::vector<std::vector<std::size_t>> before(num_layers, std::vector<std::size_t>(ways.size(), 0));
  for (std::size_t way = 0; way < ways.size(); ++way)
    if (allowed(rule, 0, ways[way])) least[0][way] = 0;
  for (std::size_t layer = 1; layer < num_layers; ++layer)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      if (!allowed(rule, layer, ways[way])) continue;
      for (std::size_t last = 0; last < ways.size(); ++last) {
        if (least[layer - 1][last] == kForbidden) continue;
        const double cost = least[layer - 1][last] + traffic.cost(layer - 1, ways[last], ways[way]);
        if (cost >= least[layer][way]) continue;
        least[layer][way] = cost;
        before[layer][way] = last;
      }
    }
  auto way = static_cast<std::size_t>(std::ranges::min_element(least.back()) - least.back().begin());
  std::vector<Ranks> ranks(num_layers);
  for (std::size_t layer = num_layers; layer-- > 0;) {
    ranks[layer] = ways[way];
    way = before[layer][way];
  }
  return ranks;
}

}  // namespace evenkeel::internal
