// Quality and objectives of a placement, compared with sums over every token and rank.
#include "evenkeel/placement/quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/traffic.h"
#include "tests/placement/oracle.h"
#include "tests/placement/small_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

// The expected results of the functions under test, computed from the tokens.
struct Oracle {
  std::vector<std::vector<double>> loads;                        // [L][P]
  std::vector<std::map<std::pair<int, int>, double>> exchanges;  // rank pair -> traffic
};

template <class F>
void for_each_copy(const Placement& placement, int layer, int expert, F f) {
  const auto homes = placement.layer(layer).homes(ExpertId(expert));
  for (RankId rank : homes) f(rank.value(), 1.0 / static_cast<double>(homes.size()));
}

Oracle walk(const SmallTrace& trace, const Placement& placement, TrafficModel model) {
  Oracle oracle;
  const int ranks = placement.num_ranks();
  const int exchanges = trace.num_layers - (model == TrafficModel::layer_to_layer ? 1 : 0);
  oracle.loads.assign(static_cast<std::size_t>(trace.num_layers),
                      std::vector<double>(static_cast<std::size_t>(ranks), 0.0));
  oracle.exchanges.resize(static_cast<std::size_t>(exchanges));
  for (std::size_t sequence = 0; sequence + 1 < trace.sequences.size(); ++sequence)
    for (std::int64_t token = trace.sequences[sequence]; token < trace.sequences[sequence + 1]; ++token)
      for (int layer = 0; layer < trace.num_layers; ++layer)
        for (int i = 0; i < trace.top_k; ++i) {
          const std::int32_t here = trace.id(token, layer, i);
          if (here == no_expert) continue;
          const auto at = static_cast<std::size_t>(layer);
          for_each_copy(placement, layer, here, [&](int rank, double share) {
            oracle.loads[at][static_cast<std::size_t>(rank)] += share;
            if (model == TrafficModel::dispatch_combine)
              oracle.exchanges[at][{static_cast<int>(sequence) % ranks, rank}] += share;
          });
          if (model == TrafficModel::dispatch_combine || layer + 1 == trace.num_layers) continue;
          for (int j = 0; j < trace.top_k; ++j) {
            const std::int32_t next = trace.id(token, layer + 1, j);
            if (next == no_expert) continue;
            for_each_copy(placement, layer, here, [&](int from, double part) {
              for_each_copy(placement, layer + 1, next, [&](int to, double share) {
                oracle.exchanges[at][{from, to}] += part * share;
              });
            });
          }
        }
  return oracle;
}

struct Case {
  std::uint64_t seed;
  std::mt19937_64 random;
  SmallTrace trace;
  int ranks;
  TrafficModel model;
  Topology topology;
  RoutingProfile profile;
  SourceCounts sources;
  Placement placement;
  PlacementProblem problem;
  Oracle oracle;

  explicit Case(std::uint64_t number)
      : seed(number),
        random(number),
        trace(random_trace(random)),
        ranks(1 + static_cast<int>(seed % 5)),
        model(seed % 2 == 0 ? TrafficModel::layer_to_layer : TrafficModel::dispatch_combine),
        topology(random_links(random, ranks)),
        profile(profile_trace(*trace.reader())),
        sources(source_counts(*trace.reader(), ranks)),
        placement(random_placement(random, trace.num_layers, trace.num_experts, ranks, seed % 3 == 0)),
        problem{.profile = profile,
                .topology = topology,
                .traffic = model,
                .pairs = seed % 4 < 2 ? PairObjective::worst_pair : PairObjective::total,
                .sources = sources,
                .cost = {.assignment_us = 0.5, .assignment_bytes = 3000}},
        oracle(walk(trace, placement, model)) {}
};

template <class Check>
void for_cases(Check check) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    check(Case(seed));
  }
}

TEST(PlacementQuality, CountsWhatCrossesEachLevelAsWalkingEveryTokenDoes) {
  for_cases([](const Case& each) {
    const PlacementQuality quality = placement_quality(each.problem, each.placement);
    double within = 0, across = 0, total = 0, worst_pair = 0;
    for (const auto& exchange : each.oracle.exchanges) {
      double worst = 0;
      for (const auto& [pair, traffic] : exchange) {
        total += traffic;
        if (pair.first == pair.second) continue;
        worst = std::max(worst, traffic);
        (each.topology.same_node(RankId(pair.first), RankId(pair.second)) ? within : across) += traffic;
      }
      worst_pair += worst;
    }
    EXPECT_NEAR(quality.crossing_within, within, 1e-9);
    EXPECT_NEAR(quality.crossing_across, across, 1e-9);
    EXPECT_NEAR(quality.crossing, within + across, 1e-9);
    EXPECT_NEAR(quality.total, total, 1e-9);
    EXPECT_NEAR(quality.worst_pair, worst_pair, 1e-9);
    for (int from = 0; from < each.ranks; ++from)
      for (int to = 0; to < each.ranks; ++to) {
        double expected = 0;
        for (const auto& exchange : each.oracle.exchanges)
          if (const auto found = exchange.find({from, to}); found != exchange.end())
            expected += found->second;
        EXPECT_NEAR(quality.traffic[static_cast<std::size_t>(from * each.ranks + to)], expected, 1e-9);
      }
  });
}

TEST(PlacementQuality, SaysTheImbalanceOfEachLayerThreeWays) {
  for_cases([](const Case& each) {
    const PlacementQuality quality = placement_quality(each.problem, each.placement);
    double sum = 0, inverse = 0, worst = 1;
    for (std::size_t layer = 0; layer < each.oracle.loads.size(); ++layer) {
      double slowest = 0, load = 0, speed = 0;
      for (int rank = 0; rank < each.ranks; ++rank) {
        const double of_rank = each.oracle.loads[layer][static_cast<std::size_t>(rank)];
        slowest = std::max(slowest, of_rank / each.topology.speed(RankId(rank)));
        load += of_rank;
        speed += each.topology.speed(RankId(rank));
      }
      const double ratio = load > 0 ? slowest / (load / speed) : 1;
      EXPECT_NEAR(quality.max_over_mean[layer], ratio, 1e-9);
      sum += ratio;
      inverse += 1 / ratio;
      worst = std::max(worst, ratio);
    }
    const auto layers = static_cast<double>(each.oracle.loads.size());
    EXPECT_NEAR(quality.max_over_mean_mean, sum / layers, 1e-9);
    EXPECT_NEAR(quality.mean_over_max_mean, inverse / layers, 1e-9);
    EXPECT_NEAR(quality.relative_excess_mean, sum / layers - 1, 1e-9);
    EXPECT_NEAR(quality.max_over_mean_worst, worst, 1e-9);
  });
}

TEST(BalanceObjective, IsTheSumOfDeviationsFromTheMean) {
  for_cases([](const Case& each) {
    double expected = 0;
    for (const auto& loads : each.oracle.loads) {
      double sum = 0;
      for (double load : loads) sum += load;
      for (double load : loads) expected += std::abs(load - sum / each.ranks);
    }
    EXPECT_NEAR(balance_objective(each.problem, each.placement), expected, 1e-9);
  });
}

TEST(PairObjective, IsTheWorstPairOrTheSumOverBandwidth) {
  for_cases([](const Case& each) {
    double expected = 0;
    for (const auto& exchange : each.oracle.exchanges) {
      double worst = 0, sum = 0;
      for (const auto& [pair, traffic] : exchange) {
        if (pair.first == pair.second) continue;
        const double cost =
            traffic / each.topology.link(RankId(pair.first), RankId(pair.second)).gigabytes_per_s;
        worst = std::max(worst, cost);
        sum += cost;
      }
      expected += each.problem.pairs == PairObjective::worst_pair ? worst : sum;
    }
    EXPECT_NEAR(pair_objective(each.problem, each.placement), expected, 1e-9);
  });
}

// The milliseconds of the slowest message of an exchange; `back` reverses every pair.
double slowest_ms(const Case& each, const std::map<std::pair<int, int>, double>& exchange, bool back) {
  double slowest = 0;
  for (int from = 0; from < each.ranks; ++from)
    for (int to = 0; to < each.ranks; ++to) {
      if (from == to) continue;
      const auto found = exchange.find(back ? std::pair(to, from) : std::pair(from, to));
      const Link link = each.topology.link(RankId(from), RankId(to));
      const double bytes = found == exchange.end() ? 0 : found->second * each.problem.cost.assignment_bytes;
      const double seconds = link.latency_us * 1e-6 + bytes / (link.gigabytes_per_s * 1e9);
      slowest = std::max(slowest, seconds * 1e3);
    }
  return slowest;
}

TEST(JointObjective, IsTheSlowestRankAndTheSlowestPairOfEveryExchange) {
  for_cases([](const Case& each) {
    double expected = 0;
    for (const auto& loads : each.oracle.loads) {
      double slowest = 0;
      for (int rank = 0; rank < each.ranks; ++rank)
        slowest = std::max(
            slowest, loads[static_cast<std::size_t>(rank)] * 0.5e-3 / each.topology.speed(RankId(rank)));
      expected += slowest;
    }
    for (const auto& exchange : each.oracle.exchanges) {
      expected += slowest_ms(each, exchange, false);
      if (each.model == TrafficModel::dispatch_combine) expected += slowest_ms(each, exchange, true);
    }
    EXPECT_NEAR(joint_objective_ms(each.problem, each.placement), expected, 1e-9);
  });
}

TEST(PlacementQuality, WithoutTransitionsKnowsNoTrafficFromLayerToLayer) {
  const RoutingProfile profile(2, 4, {1, 2, 3, 4, 4, 3, 2, 1}, {});
  const Topology topology = Topology::uniform(1, 2);
  const SourceCounts none;
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = none};
  const PlacementQuality quality = placement_quality(problem, Placement::contiguous(2, 4, 2));
  EXPECT_FALSE(quality.traffic_known);
  EXPECT_EQ(quality.total, 0);
  EXPECT_DOUBLE_EQ(quality.max_over_mean_worst, 1.4);
  EXPECT_EQ(message_of<InvalidArgument>([&] { pair_objective(problem, Placement::contiguous(2, 4, 2)); }),
            "transitions: this profile has none");
}

TEST(PlacementQuality, OfAPlacementForAnotherTopologyOrProfileIsRefused) {
  const RoutingProfile profile(2, 4);
  const Topology topology = Topology::uniform(1, 2);
  const SourceCounts none;
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = none};
  EXPECT_EQ(message_of<InvalidArgument>([&] { placement_quality(problem, Placement::contiguous(2, 4, 3)); }),
            "placement: is for 3 ranks; allowed: 2 ranks, as the topology has");
  EXPECT_EQ(message_of<InvalidArgument>([&] { balance_objective(problem, Placement::contiguous(1, 4, 2)); }),
            "placement: has 1 layers of 4 experts; allowed: 2 layers of 4 experts, as the profile has");
}

}  // namespace
}  // namespace evenkeel
