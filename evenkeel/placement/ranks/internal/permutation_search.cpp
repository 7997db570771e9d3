#include "evenkeel/placement/ranks/internal/permutation_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel::exact {

namespace {

std::vector<Ranks> all_permutations(std::size_t ranks) {
  Ranks order(ranks);
  std::iota(order.begin(), order.end(), 0);
  std::vector<Ranks> all;
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return all;
}

bool fits(const Ranks& ranks, const std::vector<std::vector<bool>>& may_lie) {
  for (std::size_t cluster = 0; cluster < ranks.size(); ++cluster)
    if (!may_lie[cluster][static_cast<std::size_t>(ranks[cluster])]) return false;
  return true;
}

// The cost of one exchange for every way of the layer before and of this one.
class StepCosts {
 public:
  StepCosts(const Exchange& exchange, const PairCosts& costs) : exchange_(exchange), costs_(costs) {}

  // Sets the layer before; costs of this one follow.
  void set_before(const Ranks& before) { before_ = &before; }

  double operator()(const Ranks& here) const {
    const std::size_t ranks = costs_.num_ranks;
    double worst = 0;
    double total = 0;
    for (std::size_t sender = 0; sender < ranks; ++sender) {
      const std::size_t row = static_cast<std::size_t>((*before_)[sender]) * ranks;
      for (std::size_t item = 0; item < ranks; ++item) {
        // One cluster a rank, so one pair of clusters for each pair of ranks; what stays costs nothing.
        const double cost =
            costs_.per_unit[row + static_cast<std::size_t>(here[item])] * exchange_.amount(sender, item);
        worst = std::max(worst, cost);
        total += cost;
      }
    }
    return costs_.objective == PairObjective::worst_pair ? worst : total;
  }

 private:
  const Exchange& exchange_;
  const PairCosts& costs_;
  const Ranks* before_ = nullptr;
};

}  // namespace

double permutation_steps(int num_ranks, int num_layers) {
  double ways = 1;
  for (int i = 2; i <= num_ranks; ++i) ways *= i;
  return ways * ways * num_ranks * num_ranks * num_layers;
}

std::vector<Ranks> best_permutations(const std::vector<Exchange>& exchanges, const PairCosts& costs,
                                     const std::vector<std::vector<std::vector<bool>>>& may_lie,
                                     const Monitor& monitor) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::vector<Ranks> ways = all_permutations(costs.num_ranks);
  std::vector<double> least(ways.size());
  for (std::size_t way = 0; way < ways.size(); ++way) least[way] = fits(ways[way], may_lie[0]) ? 0 : never;
  std::vector<std::vector<std::size_t>> came_from;
  for (std::size_t step = 0; step < exchanges.size(); ++step) {
    std::vector<double> next(ways.size(), never);
    came_from.emplace_back(ways.size());
    StepCosts cost(exchanges[step], costs);
    for (std::size_t before = 0; before < ways.size(); ++before) {
      if (least[before] == never) continue;
      if (monitor.must_end()) return {};
      cost.set_before(ways[before]);
      for (std::size_t here = 0; here < ways.size(); ++here) {
        if (!fits(ways[here], may_lie[step + 1])) continue;
        const double value = least[before] + cost(ways[here]);
        if (value >= next[here]) continue;
        next[here] = value;
        came_from.back()[here] = before;
      }
    }
    least = std::move(next);
  }
  std::size_t way = static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin());
  if (least[way] == never) return {};
  std::vector<Ranks> ranks(exchanges.size() + 1);
  for (std::size_t layer = ranks.size(); layer-- > 0;) {
    ranks[layer] = ways[way];
    if (layer > 0) way = came_from[layer - 1][way];
  }
  return ranks;
}

}  // namespace evenkeel::exact
