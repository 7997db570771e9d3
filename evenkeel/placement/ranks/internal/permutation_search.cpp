#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

double permutation_steps(int num_ranks, int num_layers) {
  double ways = 1;
  for (int i = 2; i <= num_ranks; ++i) ways *= i;
  return ways * ways * num_ranks * num_ranks * num_layers;
}

std::vector<Ranks> best_permutations(const RankRule& rule, std::size_t num_ranks, const ExchangeCost& cost,
                                     const Deadline& deadline) {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<Ranks> ways;
  Ranks order = in_order(num_ranks);
  do ways.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));

  std::vector<double> least(ways.size());
  for (std::size_t way = 0; way < ways.size(); ++way) least[way] = rule.fits(0, ways[way]) ? 0 : never;
  std::vector<std::vector<std::size_t>> came_from;
  for (std::size_t exchange = 0; exchange + 1 < rule.num_layers(); ++exchange) {
    std::vector<double> next(ways.size(), never);
    came_from.emplace_back(ways.size());
    for (std::size_t before = 0; before < ways.size(); ++before) {
      if (least[before] == never) continue;
      if (deadline.passed()) return {};
      for (std::size_t here = 0; here < ways.size(); ++here) {
        if (!rule.fits(exchange + 1, ways[here])) continue;
        const double value = least[before] + cost(exchange, ways[before], ways[here]);
        if (value >= next[here]) continue;
        next[here] = value;
        came_from.back()[here] = before;
      }
    }
    least = std::move(next);
  }
  auto way = static_cast<std::size_t>(std::ranges::min_element(least) - least.begin());
  if (least[way] == never) return {};
  std::vector<Ranks> ranks(rule.num_layers());
  for (std::size_t layer = ranks.size(); layer-- > 0;) {
    ranks[layer] = ways[way];
    if (layer > 0) way = came_from[layer - 1][way];
  }
  return ranks;
}

}  // namespace evenkeel::internal
