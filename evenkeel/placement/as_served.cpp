#include "evenkeel/placement/as_served.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/plan/dispatch.h"

namespace evenkeel {

namespace {

using Copies = std::vector<CopyRanks>;

constexpr std::int64_t kMostDraws = 400'000;
constexpr std::int64_t kMostTries = 256;
constexpr double kLevelUnderDraws = 1.002;

// At worst, one try of a random swap costs one draw for each replicated expert and pair of ranks.
std::int64_t num_tries(const Copies& copies, int num_ranks) {
  const auto replicated = std::ranges::count_if(copies, [](const CopyRanks& of) { return of.size() > 1; });
  const std::int64_t draws = std::int64_t{replicated} * num_ranks * num_ranks;
  return std::clamp<std::int64_t>(kMostDraws / std::max<std::int64_t>(draws, 1), 4, kMostTries);
}

Copies renamed(const Copies& copies, const std::vector<int>& names) {
  Copies all = copies;
  for (CopyRanks& ranks : all) {
    for (int& rank : ranks) rank = names[static_cast<std::size_t>(rank)];
    std::ranges::sort(ranks);
  }
  return all;
}

class DrawnLayer {
 public:
  DrawnLayer(std::span<const RoutingProfile> recordings, const Topology& topology, LayerId layer)
      : recordings_(recordings), topology_(topology), layer_(layer), random_(layer.value() + 1U) {
    for (RankId rank : indices<RankId>(topology.num_ranks())) all_speeds_ += topology.speed(rank);
  }

  // The largest rank load over the mean, in the worst recording. Leaves `rule` in its state after this layer.
  double heaviest(const Copies& copies, CopyRule& rule) const {
    const auto shares = rule.shares(copies);
    double worst = 0;
    for (const RoutingProfile& recording : recordings_) {
      const auto loads = recording.loads(layer_);
      std::vector<double> of_rank(static_cast<std::size_t>(topology_.num_ranks()), 0.0);
      for (std::size_t e = 0; e < copies.size(); ++e)
        for (std::size_t copy = 0; copy < copies[e].size(); ++copy) {
          const RankId rank(copies[e][copy]);
          of_rank[rank.offset()] += static_cast<double>(loads[e]) * shares[e][copy] / topology_.speed(rank);
        }
      const auto total = static_cast<double>(recording.total_load(layer_));
      if (total > 0) worst = std::max(worst, std::ranges::max(of_rank) * all_speeds_ / total);
    }
    return worst;
  }

  // A random renaming of ranks that keeps each rank in its node.
  std::vector<int> random_renaming() {
    std::vector<int> names(static_cast<std::size_t>(topology_.num_ranks()));
    std::iota(names.begin(), names.end(), 0);
    for (std::size_t i = names.size(); i-- > 1;) {
      const std::size_t j = random_() % (i + 1);
      if (topology_.same_node(RankId(names[i]), RankId(names[j])) &&
          topology_.same_node(RankId(i), RankId(j)))
        std::swap(names[i], names[j]);
    }
    return names;
  }

 private:
  std::span<const RoutingProfile> recordings_;
  const Topology& topology_;
  LayerId layer_;
  std::mt19937 random_;
  double all_speeds_ = 0;
};

// Whether all ranks hold equally many copies. Only then may ranks swap what they hold.
bool are_equally_full(const Copies& copies, int num_ranks) {
  std::vector<int> held(static_cast<std::size_t>(num_ranks), 0);
  for (const CopyRanks& ranks : copies)
    for (const int rank : ranks) ++held[static_cast<std::size_t>(rank)];
  return std::ranges::adjacent_find(held, std::not_equal_to{}) == held.end();
}

// A layer, its imbalance, and the state of the rule after it.
struct JudgedLayer {
  Copies copies;
  CopyRule after;
  double heaviest = 0;
};

JudgedLayer judged(const DrawnLayer& layer, Copies copies, const CopyRule& before) {
  JudgedLayer found{.copies = std::move(copies), .after = before};
  found.heaviest = layer.heaviest(found.copies, found.after);
  return found;
}

}  // namespace

Placement most_level_as_served(std::span<const Placement> placements,
                               std::span<const RoutingProfile> recordings, const Topology& topology,
                               Dispatch dispatch, CopySwaps swaps, const SolveLimits& limits) {
  const internal::Deadline deadline(limits);
  CopyRule rule(topology, dispatch);
  std::vector<LayerPlacement> layers;
  const LayerNumbers& numbers = placements.front().layers();
  for (LayerId layer : indices<LayerId>(placements.front().num_layers())) {
    const Copies first = copies_in(placements.front().layer(layer.value()));
    rule.skip_to(numbers.number_of(layer.value()), first);
    DrawnLayer drawn(recordings, topology, layer);
    JudgedLayer best = judged(drawn, first, rule);
    for (const Placement& other : placements.subspan(1)) {
      JudgedLayer found = judged(drawn, copies_in(other.layer(layer.value())), rule);
      if (found.heaviest < best.heaviest) best = std::move(found);
    }
    const Copies given = best.copies;
    const bool may_swap = dispatch == Dispatch::fixed && swaps == CopySwaps::within_nodes &&
                          are_equally_full(given, topology.num_ranks());
    for (std::int64_t left = num_tries(given, topology.num_ranks());
         may_swap && left > 0 && best.heaviest > kLevelUnderDraws && !deadline.passed(); --left) {
      JudgedLayer found = judged(drawn, renamed(given, drawn.random_renaming()), rule);
      if (found.heaviest < best.heaviest) best = std::move(found);
    }
    rule = std::move(best.after);
    layers.emplace_back(best.copies, topology.num_ranks());
  }
  return Placement(std::move(layers), numbers);
}

}  // namespace evenkeel
