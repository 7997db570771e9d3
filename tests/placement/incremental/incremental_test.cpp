// Moving few experts: within the move budget, never worse, and with many moves as good as placing from
// scratch.
#include "evenkeel/placement/incremental/incremental.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/incremental/internal/move_budget.h"
#include "evenkeel/placement/incremental/internal/rank_matching.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "tests/placement/replicas/replica_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

struct LiveCase {
  ReplicaCase replicas;
  std::vector<double> loads;  // the current loads
  Placement live;
  int max_moves = 0;
};

// A live placement that was made for other loads, or contiguously without regard to loads.
LiveCase random_live_case(int seed, int most_experts = 24, int most_ranks = 8) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  ReplicaCase c = random_replica_case(random, most_experts, most_ranks, false);
  c.num_layers = draw_int(random, 1, 4);
  std::vector<double> today;
  c.loads.clear();
  for (int l = 0; l < c.num_layers; ++l) {
    for (double load : replica_loads(random, c.num_experts)) c.loads.push_back(load);
    for (double load : replica_loads(random, c.num_experts)) today.push_back(load);
  }
  const bool single = seed % 3 == 0;
  if (single) c.num_physical = c.num_experts;
  Placement live = single ? Placement::contiguous(c.num_layers, c.num_experts, c.num_ranks)
                          : placement_of(replicate(c.problem()), c.num_experts);
  return {c, today, std::move(live), draw_int(random, 0, 12)};
}

double max_over_mean(const LiveCase& c, const Placement& placement, int layer) {
  const auto experts = static_cast<std::size_t>(c.replicas.num_experts);
  return max_over_mean_of(placement.layer(layer),
                          std::span(c.loads).subspan(static_cast<std::size_t>(layer) * experts, experts));
}

template <class Check>
void for_live_cases(int count, Check check) {
  for (int seed = 0; seed < count; ++seed) {
    const LiveCase c = random_live_case(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(c.max_moves) +
                 " moves: " + c.replicas.text());
    check(c, place_incrementally({c.live, c.loads, c.max_moves}));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Incremental, TakesNoMoreMovesThanAllowedMakesNoLayerWorseKeepsSlotsAndSaysWhatIsThere) {
  for_live_cases(600, [](const LiveCase& c, const IncrementalResult& result) {
    int moves = 0;
    for (int l = 0; l < c.live.num_layers(); ++l) {
      const int of_layer = new_homes(c.live.layer(l), result.placement.layer(l));
      EXPECT_EQ(result.moves_of_layer[static_cast<std::size_t>(l)], of_layer);
      moves += of_layer;
      const double before = max_over_mean(c, c.live, l), after = max_over_mean(c, result.placement, l);
      EXPECT_LE(after, before + 1e-9);
      EXPECT_NEAR(result.max_over_mean[static_cast<std::size_t>(l)], after, 1e-9);
      EXPECT_NEAR(result.max_over_mean_before[static_cast<std::size_t>(l)], before, 1e-9);
      for (RankId rank : indices<RankId>(c.live.num_ranks()))
        EXPECT_EQ(result.placement.layer(l).natives(rank).size(), c.live.layer(l).natives(rank).size());
    }
    EXPECT_EQ(result.moves, moves);
    EXPECT_LE(moves, c.max_moves);
  });
}

TEST(Incremental, WithMovesEnoughItIsWithinHalfAPercentOfStartingAnew) {
  for (int seed = 0; seed < 300; ++seed) {
    const LiveCase c = random_live_case(seed, seed % 4 == 0 ? 200 : 24, seed % 4 == 0 ? 32 : 8);
    const IncrementalResult result = place_incrementally({c.live, c.loads, 1 << 20});
    ReplicaCase today = c.replicas;
    today.loads = c.loads;
    const ReplicaSolution anew = replicate(today.problem());
    for (std::size_t l = 0; l < anew.max_over_mean.size(); ++l)
      ASSERT_LE(result.max_over_mean[l], anew.max_over_mean[l] * 1.005)
          << "seed " << seed << ": " << today.text();
  }
}

TEST(Incremental, LayersNotReachedInTimeStayAsTheyAre) {
  const Placement live = Placement::contiguous(2, 4, 2);
  const std::vector<double> loads = {9, 9, 1, 1, 9, 9, 1, 1};
  std::stop_source stop;
  stop.request_stop();
  EXPECT_GT(place_incrementally({live, loads, 8}).moves, 0);
  for (const SolveLimits& limits : {SolveLimits{.time_limit_s = 0}, SolveLimits{.stop = stop.get_token()}}) {
    const IncrementalResult result =
        place_incrementally({.current = live, .loads = loads, .max_moves = 8, .limits = limits});
    EXPECT_EQ(result.moves, 0);
    for (int l = 0; l < 2; ++l) EXPECT_EQ(result.placement.layer(l), live.layer(l));
  }
}

// The best max/mean after swapping at most two experts, by trying all swaps.
double best_exchange(const LayerPlacement& live, std::span<const double> loads) {
  std::vector<std::vector<int>> homes;
  for (ExpertId e : indices<ExpertId>(live.num_experts())) homes.push_back({live.owner(e).value()});
  double best = max_over_mean_of(live, loads);
  for (std::size_t a = 0; a < homes.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      std::swap(homes[a], homes[b]);
      best = std::min(best, max_over_mean_of(LayerPlacement(homes, live.num_ranks()), loads));
      std::swap(homes[a], homes[b]);
    }
  return best;
}

TEST(Incremental, TwoMovesInALayerWithoutCopiesAreTheBestExchange) {
  for (int seed = 0; seed < 600; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const int experts = draw_int(random, 2, 20);
    const std::vector<double> loads = replica_loads(random, experts);
    const Placement live = Placement::contiguous(1, experts, draw_int(random, 2, 6));
    const IncrementalResult result = place_incrementally({live, loads, 2});
    ASSERT_LE(result.max_over_mean[0], best_exchange(live.layer(0), loads) * (1 + 1.1e-4)) << "seed " << seed;
  }
}

TEST(Incremental, AFreeSlotTakesACopyAndACopyIsGivenUpForAnotherForOneMove) {
  const Placement single({LayerPlacement({{0}, {1}}, 2)});
  const IncrementalResult copied = place_incrementally({single, std::vector<double>{10, 2}, 1, 1, {1, 2}});
  EXPECT_EQ(copied.moves, 1);
  EXPECT_DOUBLE_EQ(copied.max_over_mean[0], 7.0 / 6);
  const Placement copies({LayerPlacement({{0}, {1}, {0, 1}}, 2)});
  const IncrementalResult exchanged = place_incrementally({copies, std::vector<double>{10, 4, 2}, 1});
  EXPECT_EQ(exchanged.moves, 1);
  EXPECT_DOUBLE_EQ(exchanged.max_over_mean[0], 9.0 / 8);  // expert 0 on both ranks: 5 + 2 and 5 + 4
}

TEST(Incremental, CopiesStayOnTheNodesOfTheirExperts) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const int experts = draw_int(random, 4, 24);
    std::vector<double> loads = replica_loads(random, experts);
    const Placement live = Placement::contiguous(1, experts, 4);
    const IncrementalResult result = place_incrementally({live, loads, 1 << 20, 2});
    for (ExpertId e : indices<ExpertId>(experts))
      for (RankId home : result.placement.layer(0).homes(e))
        EXPECT_EQ(home.value() / 2, live.layer(0).owner(e).value() / 2) << "seed " << seed;
  }
}

TEST(Incremental, AnAlternativeIsTakenUnderTheRankNumbersThatKeepMost) {
  const Placement live({LayerPlacement({{0}, {0}, {1}, {1}}, 2)});
  const Placement alternative({LayerPlacement({{1}, {0}, {1}, {0}}, 2)});
  const std::vector<double> loads = {5, 5, 1, 1};
  const IncrementalResult result = place_incrementally(
      {.current = live, .loads = loads, .max_moves = 2, .num_nodes = 2, .alternative = &alternative});
  EXPECT_EQ(result.moves, 2);
  EXPECT_DOUBLE_EQ(result.max_over_mean[0], 1);
  EXPECT_DOUBLE_EQ(place_incrementally({live, loads, 2, 2}).max_over_mean[0], 10.0 / 6);  // no moves across
}

TEST(RankMatching, PutsShuffledRanksBack) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const int nodes = draw_int(random, 1, 3);
    const int ranks = nodes * draw_int(random, 1, 4);
    const LayerPlacement live = LayerPlacement::contiguous(ranks * draw_int(random, 1, 5), ranks);
    std::vector<int> node_of(static_cast<std::size_t>(nodes));
    std::iota(node_of.begin(), node_of.end(), 0);
    std::ranges::shuffle(node_of, random);
    std::vector<int> rank_of;
    for (int node : node_of) {
      std::vector<int> of_node(static_cast<std::size_t>(ranks / nodes));
      std::iota(of_node.begin(), of_node.end(), node * (ranks / nodes));
      std::ranges::shuffle(of_node, random);
      rank_of.insert(rank_of.end(), of_node.begin(), of_node.end());
    }
    std::vector<std::vector<int>> shuffled;
    for (ExpertId e : indices<ExpertId>(live.num_experts()))
      shuffled.push_back({rank_of[live.owner(e).offset()]});
    EXPECT_EQ(internal::renumbered(LayerPlacement(shuffled, ranks), live, nodes), live) << "seed " << seed;
  }
}

TEST(Incremental, SaysWhatIsWrong) {
  const Placement live = Placement::contiguous(1, 4, 2);
  const std::vector<double> loads = {1, 2, 3, 4};
  const auto message = [](const IncrementalProblem& problem) {
    return message_of<InvalidArgument>([&] { place_incrementally(problem); });
  };
  EXPECT_NO_THROW(place_incrementally({live, loads, 3}));
  EXPECT_THAT(message({live, loads, -1}), testing::HasSubstr("max_moves: -1"));
  EXPECT_THAT(message({live, std::span(loads).first(3), 1}), testing::HasSubstr("1 layers x 4 experts"));
  const std::vector<double> negative = {1, 2, -3, 4};
  EXPECT_THAT(message({live, negative, 1}), testing::HasSubstr("layer 0, expert 2: -3"));
  EXPECT_THAT(message({live, loads, 1, 3}), testing::HasSubstr("3 nodes for 2 ranks"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message({.current = live, .loads = loads, .max_moves = 1, .least_gain = nan}),
            "least_gain: nan; allowed: 0 or more, finite");
  const Placement wider = Placement::contiguous(1, 4, 4);
  EXPECT_EQ(message({.current = live, .loads = loads, .max_moves = 1, .alternative = &wider}),
            "alternative: 1 layers x 4 experts on 4 ranks; allowed: 1 layers x 4 experts on 2 ranks, as the "
            "current placement has");
  const Placement uneven({LayerPlacement({{0}, {0}, {0}, {1}}, 2)});
  EXPECT_EQ(
      message({.current = live, .loads = loads, .max_moves = 1, .alternative = &uneven}),
      "alternative: rank 0 holds 3 experts, but has 2 slots; allowed: as many experts as slots on each rank");
  EXPECT_THAT(message({live, loads, 1, 1, {2}}), testing::HasSubstr("1 layers x 2 ranks"));
  const std::vector<double> huge(4, 1e308);
  EXPECT_EQ(message({live, huge, 1}), "loads: the loads of layer 0 add up to inf; allowed: a finite total");
  EXPECT_THAT(message({live, loads, 1, 1, {2, 1}}),
              testing::HasSubstr("rank 1 holds 2 experts, but has 1 slots"));
}

// The least sum over all ways to choose one offer for each layer.
double least_sum(std::span<const std::vector<internal::MoveOffer>> offers, int left) {
  if (offers.empty()) return 0;
  double best = 1e300;
  for (const internal::MoveOffer& offer : offers.front())
    if (offer.moves <= left)
      best = std::min(best, offer.value + least_sum(offers.subspan(1), left - offer.moves));
  return best;
}

TEST(MoveBudget, EndsOnceTheSumIsWithinTheSpareOfTheLeast) {
  const std::vector<std::vector<internal::MoveOffer>> offers = {
      {{0, 2.0, 0}, {1, 1.5, 1}, {3, 1.25, 2}, {9, 1.0, 3}}, {{0, 1.5, 0}, {4, 1.0, 1}}};
  EXPECT_DOUBLE_EQ(internal::most_gain(offers), 1.5);
  const internal::Deadline none(SolveLimits{});
  using Taken = std::vector<std::size_t>;
  EXPECT_EQ(internal::spend_moves(offers, 99, 1.5, none), (Taken{0, 0}));
  EXPECT_EQ(internal::spend_moves(offers, 99, 1.0, none), (Taken{1, 0}));
  EXPECT_EQ(internal::spend_moves(offers, 99, 0.75, none), (Taken{2, 0}));
  EXPECT_EQ(internal::spend_moves(offers, 99, 0.25, none), (Taken{2, 1}));
  EXPECT_EQ(internal::spend_moves(offers, 99, 0, none), (Taken{3, 1}));
  EXPECT_EQ(internal::spend_moves(offers, 3, 0.25, none), (Taken{2, 0}));
}

TEST(MoveBudget, IsNearTheBestChoiceOfOffersAndNeverAboveTheBudget) {
  double found = 0;
  double least = 0;
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::vector<std::vector<internal::MoveOffer>> offers(static_cast<std::size_t>(draw_int(random, 1, 5)));
    for (auto& of_layer : offers) {
      of_layer.push_back({0, 2.0, 0});
      for (int i = draw_int(random, 0, 6); i > 0; --i)
        of_layer.push_back({draw_int(random, 1, 12), 1 + draw_int(random, 0, 99) / 100.0, 1});
      internal::keep_useful(of_layer);
    }
    const int budget = draw_int(random, 0, 30);
    const auto taken = internal::spend_moves(offers, budget, 0, internal::Deadline(SolveLimits{}));
    int moves = 0;
    for (std::size_t l = 0; l < offers.size(); ++l) {
      found += offers[l][taken[l]].value;
      moves += offers[l][taken[l]].moves;
    }
    EXPECT_LE(moves, budget) << "seed " << seed;
    least += least_sum(offers, budget);
  }
  EXPECT_LE(found, least * 1.01);
  EXPECT_GE(found, least - 1e-9);
}

}  // namespace
}  // namespace evenkeel
