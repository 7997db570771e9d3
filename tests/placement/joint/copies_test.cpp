// Copies and homes chosen jointly for balance and traffic, compared with brute force.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "evenkeel/placement/place.h"
#include "tests/placement/oracle.h"

namespace evenkeel {
namespace {

using Objective = PlaceOptions::Objective;
using LayerHomes = std::vector<std::vector<int>>;  // [E] the ranks of each expert
using CopyHomes = std::vector<LayerHomes>;         // [L]

struct CopyShape {
  SmallShape of;
  int copies;
};

double rounding(double value) {
  return 1e-9 * (1 + std::abs(value));
}

PlaceOptions options_of(const SmallProblem& small, int copies, Objective objective = Objective::joint) {
  return {.objective = objective,
          .traffic = small.traffic,
          .pairs = small.pairs,
          .cost = small.cost,
          .redundant_experts = copies,
          .sources = small.sources};
}

PlaceResult placed(const SmallProblem& small, int copies, Objective objective = Objective::joint) {
  return place(small.profile, small.topology, options_of(small, copies, objective));
}

CopyHomes homes_in(const Placement& placement) {
  CopyHomes homes;
  for (int layer = 0; layer < placement.num_layers(); ++layer) {
    LayerHomes& of_layer = homes.emplace_back();
    for (ExpertId expert : indices<ExpertId>(placement.num_experts())) {
      auto& ranks = of_layer.emplace_back();
      for (RankId rank : placement.layer(layer).homes(expert)) ranks.push_back(rank.value());
    }
  }
  return homes;
}

// [P] the number of slots per rank; a LayerPlacement never has an expert twice on a rank.
std::vector<int> slots_in(const LayerPlacement& layer) {
  std::vector<int> slots;
  for (RankId rank : indices<RankId>(layer.num_ranks()))
    slots.push_back(static_cast<int>(layer.natives(rank).size()));
  return slots;
}

// The cost by its definition: an expert's load and its traffic are divided equally among its copies.
double oracle_ms(const SmallProblem& small, const CopyHomes& homes) {
  const auto P = static_cast<std::size_t>(small.topology.num_ranks());
  const auto E = static_cast<std::size_t>(small.profile.num_experts());
  const auto share = [](const std::vector<int>& ranks) { return 1.0 / static_cast<double>(ranks.size()); };
  double sum = 0;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    for (double slowest = 0; RankId rank : indices<RankId>(P)) {
      double load = 0;
      for (std::size_t e = 0; e < E; ++e)
        for (int home : homes[layer][e])
          if (RankId(home) == rank)
            load += static_cast<double>(small.profile.loads(LayerId(layer))[e]) * share(homes[layer][e]);
      const double before = slowest;
      slowest = std::max(slowest, load / small.topology.speed(rank));
      sum += (slowest - before) * small.cost.assignment_us / 1000;
    }
  const bool dispatch = small.traffic == TrafficModel::dispatch_combine;
  for (std::size_t at = 0; at + (dispatch ? 0 : 1) < homes.size(); ++at) {
    std::vector<double> traffic(P * P, 0.0);
    const auto send = [&](int from, int to, double count) {
      traffic[static_cast<std::size_t>(from) * P + static_cast<std::size_t>(to)] += count;
    };
    for (std::size_t b = 0; b < E; ++b) {
      const std::vector<int>& receivers = homes[at + (dispatch ? 0 : 1)][b];
      for (int to : receivers) {
        for (RankId source : indices<RankId>(dispatch ? P : 0))
          send(source.value(), to, small.sources.at(LayerId(at), source, ExpertId(b)) * share(receivers));
        for (std::size_t a = 0; a < E && !dispatch; ++a)
          for (int from : homes[at][a])
            send(from, to,
                 static_cast<double>(small.profile.transitions(LayerId(at))[a * E + b]) * share(receivers) *
                     share(homes[at][a]));
      }
    }
    double out = 0;
    double back = 0;
    for (RankId from : indices<RankId>(P))
      for (RankId to : indices<RankId>(P)) {
        if (from == to) continue;
        const double bytes = traffic[from.offset() * P + to.offset()] * small.cost.assignment_bytes;
        const Link there = small.topology.link(from, to);
        const Link home = small.topology.link(to, from);
        out = std::max(out, there.latency_us / 1000 + bytes / (there.gigabytes_per_s * 1e6));
        back = std::max(back, home.latency_us / 1000 + bytes / (home.gigabytes_per_s * 1e6));
      }
    sum += out + (dispatch ? back : 0);
  }
  return sum;
}

// All ways to fill the slots such that a rank's experts differ and each expert occurs at least once.
std::vector<LayerHomes> all_layers(int num_experts, const std::vector<int>& slots) {
  std::vector<LayerHomes> ways = {LayerHomes(static_cast<std::size_t>(num_experts))};
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    std::vector<LayerHomes> longer;
    for (const LayerHomes& way : ways)
      for (unsigned held = 0; held < 1u << num_experts; ++held) {
        if (std::popcount(held) != slots[rank]) continue;
        longer.push_back(way);
        for (std::size_t e = 0; e < longer.back().size(); ++e)
          if ((held >> e & 1) != 0) longer.back()[e].push_back(static_cast<int>(rank));
      }
    ways = std::move(longer);
  }
  std::erase_if(ways, [](const LayerHomes& way) {
    return std::ranges::any_of(way, [](const auto& ranks) { return ranks.empty(); });
  });
  return ways;
}

double best_ms(const SmallProblem& small, const std::vector<int>& slots) {
  const std::vector<LayerHomes> ways = all_layers(small.profile.num_experts(), slots);
  double best = std::numeric_limits<double>::infinity();
  for (const LayerHomes& first : ways) {
    if (small.profile.num_layers() == 1) best = std::min(best, oracle_ms(small, {first}));
    for (std::size_t i = 0; i < ways.size() && small.profile.num_layers() == 2; ++i)
      best = std::min(best, oracle_ms(small, {first, ways[i]}));
  }
  return best;
}

TEST(JointCopies, AreBetweenTheirBoundAndCopiesPlacedByBalance) {
  constexpr CopyShape shapes[] = {{{1, 3, 2}, 1}, {{1, 4, 2}, 2}, {{1, 3, 3}, 2}, {{1, 5, 3}, 1},
                                  {{2, 3, 2}, 1}, {{2, 4, 2}, 2}, {{2, 3, 3}, 1}, {{2, 2, 2}, 2}};
  int best_found = 0;
  int better = 0;
  constexpr unsigned kSeeds = 400;
  for_seeds(0, kSeeds, [&](std::mt19937_64& random, unsigned seed) {
    const CopyShape& shape = shapes[seed % std::size(shapes)];
    const SmallProblem small = random_problem(random, shape.of);
    const Placement start = placed(small, shape.copies, Objective::two_stage).placement;
    const PlaceResult found = placed(small, shape.copies);
    const double ms = found.objective.at("joint_ms");
    const double start_ms = oracle_ms(small, homes_in(start));
    const double best = best_ms(small, slots_in(start.layer(0)));
    for (int layer = 0; layer < shape.of.layers; ++layer)
      EXPECT_EQ(slots_in(found.placement.layer(layer)), slots_in(start.layer(layer)));
    EXPECT_NEAR(ms, oracle_ms(small, homes_in(found.placement)), rounding(ms));
    EXPECT_LE(ms, start_ms + rounding(ms));
    EXPECT_GE(ms, best - rounding(best));
    EXPECT_LE(found.bound.at("joint_ms"), best + rounding(best));
    best_found += ms <= best + rounding(best);
    better += ms < start_ms - rounding(ms);
    if (found.proven_optimal) {
      EXPECT_LE(ms, best + rounding(best));
    }
  });
  EXPECT_GE(best_found, static_cast<int>(kSeeds) * 17 / 20);
  EXPECT_GE(better, static_cast<int>(kSeeds) / 6);
}

TEST(JointCopies, AreNeverWorseThanTheirStartAndTheSameEachTime) {
  for_seeds(0, 40, [&](std::mt19937_64& random, unsigned seed) {
    SmallProblem small = random_problem(random, {4, 24, 6});
    if (seed % 2 == 0) small.topology = Topology::uniform(2, 3, {4, 1}, {1, 5});
    const int copies = 1 + static_cast<int>(random() % 12);
    const Placement start = placed(small, copies, Objective::two_stage).placement;
    const PlaceResult found = placed(small, copies);
    const double ms = found.objective.at("joint_ms");
    for (int layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(slots_in(found.placement.layer(layer)), slots_in(start.layer(layer)));
      EXPECT_EQ(found.placement.layer(layer), placed(small, copies).placement.layer(layer));
    }
    EXPECT_LE(ms, oracle_ms(small, homes_in(start)) + rounding(ms));
    EXPECT_NEAR(ms, oracle_ms(small, homes_in(found.placement)), rounding(ms));
    EXPECT_LE(found.bound.at("joint_ms"), ms);
  });
}

TEST(JointCopies, LeaveTheHeaviestExpertToAFastRank) {
  // Balance without speeds copies expert 0, which puts 40 of the load on the slow rank. Copying expert 1
  // leaves 20 there, and 70 on the rank that is three times as fast.
  SmallProblem small;
  small.profile = RoutingProfile(1, 3, {60, 20, 10}, {});
  small.topology = Topology({.node_of_rank = {0, 0}, .speeds = {1, 3}});
  small.cost = {.assignment_us = 1000, .assignment_bytes = 0};
  const PlaceResult found = placed(small, 1);
  EXPECT_DOUBLE_EQ(found.objective.at("joint_ms"), 70.0 / 3);
  EXPECT_EQ(homes_in(found.placement), (CopyHomes{{{1}, {0, 1}, {0}}}));
}

}  // namespace
}  // namespace evenkeel
