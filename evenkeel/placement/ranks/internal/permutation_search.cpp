#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

double permutation_steps(int num_ranks, int num_layers) {
  double permutations = 1;
  for (int i = 2; i <= num_ranks; ++i) permutations *= i;
  return permutations * permutations * num_ranks * num_ranks * num_layers;
}

std::vector<Ranks> best_permutations(const RankRule& rule, std::size_t num_ranks, const ExchangeCost& cost,
                                     const Deadline& deadline) {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<Ranks> orders;
  Ranks order = in_order(num_ranks);
  do orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));

  std::vector<double> least(orders.size());
  for (std::size_t i = 0; i < orders.size(); ++i) least[i] = rule.fits(0, orders[i]) ? 0 : never;
  std::vector<std::vector<std::size_t>> came_from;
  for (std::size_t exchange = 0; exchange + 1 < rule.num_layers(); ++exchange) {
    std::vector<double> next(orders.size(), never);
    came_from.emplace_back(orders.size());
    for (std::size_t before = 0; before < orders.size(); ++before) {
      if (least[before] == never) continue;
      if (deadline.passed()) return {};
      for (std::size_t here = 0; here < orders.size(); ++here) {
        if (!rule.fits(exchange + 1, orders[here])) continue;
        const double value = least[before] + cost(exchange, orders[before], orders[here]);
        if (value >= next[here]) continue;
        next[here] = value;
        came_from.back()[here] = before;
      }
    }
    least = std::move(next);
  }
  auto chosen = static_cast<std::size_t>(std::ranges::min_element(least) - least.begin());
  if (least[chosen] == never) return {};
  std::vector<Ranks> ranks(rule.num_layers());
  for (std::size_t layer = ranks.size(); layer-- > 0;) {
    ranks[layer] = orders[chosen];
    if (layer > 0) chosen = came_from[layer - 1][chosen];
  }
  return ranks;
}

}  // namespace evenkeel::internal
