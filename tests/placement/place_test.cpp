// place(): every option reaches its solver, and the results equal those of the evaluator.
#include "evenkeel/placement/place.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/problem.h"
#include "evenkeel/placement/traffic.h"
#include "tests/placement/small_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Solver = PlaceOptions::Solver;
using Objective = PlaceOptions::Objective;

PlacementProblem problem_of(const RoutingProfile& profile, const Topology& topology,
                            const PlaceOptions& options) {
  return {.profile = profile,
          .topology = topology,
          .sizes = options.sizes,
          .traffic = options.traffic,
          .pairs = options.pairs,
          .sources = options.sources,
          .cost = options.cost};
}

std::vector<std::size_t> sizes_of(const LayerPlacement& layer) {
  std::vector<std::size_t> sizes;
  for (RankId rank : indices<RankId>(layer.num_ranks())) sizes.push_back(layer.natives(rank).size());
  return sizes;
}

TEST(Place, ByDefaultGivesEveryRankAsManyExpertsAndReportsWhatTheEvaluatorFinds) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingProfile profile = random_profile(seed, 4, 16);
    const Topology topology = Topology::uniform(1 + static_cast<int>(seed % 2), 4);
    const PlaceOptions options{.pairs = seed % 3 == 0 ? PairObjective::total : PairObjective::worst_pair};
    const PlaceResult placed = place(profile, topology, options);
    const PlacementProblem problem = problem_of(profile, topology, options);
    for (int layer = 0; layer < 4; ++layer)
      EXPECT_EQ(sizes_of(placed.placement.layer(layer)),
                std::vector<std::size_t>(static_cast<std::size_t>(topology.num_ranks()),
                                         static_cast<std::size_t>(16 / topology.num_ranks())));
    EXPECT_DOUBLE_EQ(placed.objective.at("balance"), balance_objective(problem, placed.placement));
    EXPECT_DOUBLE_EQ(placed.objective.at("traffic"), pair_objective(problem, placed.placement));
    for (const auto& [name, value] : placed.objective) {
      EXPECT_LE(placed.bound.at(name), value) << name;
      EXPECT_FALSE(placed.bound_of.at(name).empty()) << name;
    }
    EXPECT_LT(placed.after.max_over_mean_mean, placed.before.max_over_mean_mean);
    EXPECT_GT(placed.solve_ms, 0);
    EXPECT_TRUE(placed.notes.empty());
  }
}

TEST(Place, WithFreeSizesGivesEveryRankTheSameTotalAndBalancesNoWorse) {
  const RoutingProfile profile = random_profile(5, 4, 16);
  const Topology topology = Topology::uniform(1, 4);
  const PlaceResult equal = place(profile, topology);
  const PlaceResult free = place(profile, topology, {.sizes = ClusterSizes::free});
  std::vector<std::size_t> totals(4, 0);
  for (int layer = 0; layer < 4; ++layer) {
    const auto sizes = sizes_of(free.placement.layer(layer));
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_GE(sizes[rank], 1u);
      totals[rank] += sizes[rank];
    }
  }
  EXPECT_EQ(totals, std::vector<std::size_t>(4, 16));
  EXPECT_LE(free.objective.at("balance"), equal.objective.at("balance"));
}

// If P divides E, equal sizes are also allowed as free sizes.
TEST(Place, JointlyWithFreeSizesIsNoWorseThanWithEqualOnes) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingProfile profile = random_profile(seed, 4, 16);
    const Topology topology = Topology::uniform(1 + static_cast<int>(seed % 2), 4, {100, 1}, {10, 3});
    const PlaceResult equal = place(profile, topology, {.objective = Objective::joint});
    const PlaceResult free =
        place(profile, topology, {.objective = Objective::joint, .sizes = ClusterSizes::free});
    EXPECT_LE(free.objective.at("joint_ms"), equal.objective.at("joint_ms"));
  }
}

// Each token keeps its expert in all layers, so the same placement in all layers causes no traffic between
// ranks.
RoutingProfile faithful_profile(int layers, int experts) {
  RoutingProfile profile(layers, experts);
  std::vector<std::int32_t> ids;
  for (int expert = 0; expert < experts; ++expert)
    for (int token = 0; token < 10 * (expert % 5 + 1); ++token)
      ids.insert(ids.end(), static_cast<std::size_t>(layers), expert);
  profile.add_tokens(ids, 1);
  return profile;
}

TEST(Place, WithRedundantExpertsSendsLessThanRanksNamedAnyhow) {
  const RoutingProfile profile = faithful_profile(6, 16);
  const Topology topology = Topology::uniform(1, 4);
  const PlaceResult placed = place(profile, topology, {.redundant_experts = 4});
  // The same sets of experts, but with ranks renumbered in every layer.
  std::vector<LayerPlacement> turned;
  for (int layer = 0; layer < 6; ++layer) {
    std::vector<std::vector<int>> homes;
    for (ExpertId expert : indices<ExpertId>(16)) {
      auto& of_expert = homes.emplace_back();
      for (RankId rank : placed.placement.layer(layer).homes(expert))
        of_expert.push_back((rank.value() + layer) % 4);
    }
    turned.emplace_back(homes, 4);
  }
  const PlacementProblem problem = problem_of(profile, topology, {});
  EXPECT_LT(pair_objective(problem, placed.placement), pair_objective(problem, Placement(turned)));
}

TEST(Place, FromAProfileAloneSaysThatTokensAreSpreadEvenly) {
  const RoutingProfile profile = random_profile(1, 2, 8);
  const PlaceResult placed =
      place(profile, Topology::uniform(1, 4), {.traffic = TrafficModel::dispatch_combine});
  ASSERT_EQ(placed.notes.size(), 1u);
  EXPECT_NE(placed.notes[0].find("it is not known which rank each token comes from"), std::string::npos);
  EXPECT_NEAR(placed.after.crossing, placed.after.total * 3 / 4, 1e-6);
}

// Balance puts experts 0 and 1 together, and 2 and 3; the tokens decide which rank each pair gets.
TEST(Place, PutsExpertsWhereTheirTokensLive) {
  const RoutingProfile profile(1, 4, {9, 1, 6, 4}, {});
  const SourceCounts here{
      .num_layers = 1, .num_ranks = 2, .num_experts = 4, .counts = {9, 1, 0, 0, 0, 0, 6, 4}};
  const SourceCounts there{
      .num_layers = 1, .num_ranks = 2, .num_experts = 4, .counts = {0, 0, 6, 4, 9, 1, 0, 0}};
  for (const auto& [sources, crossing_before] : {std::pair{here, 0.0}, std::pair{there, 20.0}}) {
    const PlaceResult placed = place(profile, Topology::uniform(1, 2),
                                     {.traffic = TrafficModel::dispatch_combine, .sources = sources});
    EXPECT_EQ(placed.before.crossing, crossing_before);
    EXPECT_EQ(placed.after.crossing, 0);
    EXPECT_EQ(placed.objective.at("balance"), 0);
    EXPECT_TRUE(placed.notes.empty());
  }
}

TEST(Place, WithoutTransitionsBalancesCopiesAndSaysThatTrafficIsUnknown) {
  const RoutingProfile profile(2, 4, {90, 1, 2, 3, 4, 5, 80, 7}, {});
  const PlaceResult placed = place(profile, Topology::uniform(1, 4), {.redundant_experts = 4});
  EXPECT_FALSE(placed.after.traffic_known);
  ASSERT_EQ(placed.notes.size(), 1u);
  EXPECT_NE(placed.notes[0].find("no transitions"), std::string::npos);
}

TEST(Place, FromAPlacementMovesNoMoreExpertsThanAllowedAndMakesNoLayerWorse) {
  const RoutingProfile profile = random_profile(2, 3, 16);
  const Topology topology = Topology::uniform(1, 4);
  for (int moves : {0, 1, 4, 100}) {
    SCOPED_TRACE(moves);
    const Placement from = Placement::contiguous(3, 16, 4);
    const PlaceResult placed = place(profile, topology, {.from = from, .max_moves = moves});
    int moved = 0;
    for (int layer = 0; layer < 3; ++layer)
      for (ExpertId expert : indices<ExpertId>(16))
        for (RankId rank : placed.placement.layer(layer).homes(expert))
          moved += from.layer(layer).is_home(expert, rank) ? 0 : 1;
    EXPECT_LE(moved, moves);
    for (std::size_t layer = 0; layer < 3; ++layer)
      EXPECT_LE(placed.after.max_over_mean[layer], placed.before.max_over_mean[layer] + 1e-12);
    EXPECT_NEAR(placed.objective.at("max_over_mean"), placed.after.max_over_mean_mean, 1e-9);
    ASSERT_EQ(placed.notes.size(), 1u);
    EXPECT_NE(placed.notes[0].find(std::to_string(moved) + " experts got a new home"), std::string::npos);
    if (moves > 1) {
      EXPECT_LT(placed.after.max_over_mean_mean, placed.before.max_over_mean_mean);
    }
  }
}

int num_homes(const LayerPlacement& layer) {
  const auto sizes = sizes_of(layer);
  return static_cast<int>(std::reduce(sizes.begin(), sizes.end()));
}

TEST(Place, WithCopiesReachesTheBalanceItReportsGivesARankAsManySlotsInEveryLayerAndCanBeMovedOnFrom) {
  for (int experts = 4; experts <= 9; ++experts)
    for (int copies = 1; copies <= 6; ++copies)
      for (int ranks = 2; ranks <= 5; ++ranks) {
        if (experts + copies > experts * ranks) continue;  // a rank would hold an expert twice
        SCOPED_TRACE(testing::Message() << experts << " + " << copies << " on " << ranks);
        const Topology topology = Topology::uniform(1, ranks);
        const auto seed = static_cast<std::uint64_t>(100 * experts + 10 * copies + ranks);
        const PlaceResult placed =
            place(random_profile(seed, 3, experts), topology, {.redundant_experts = copies});
        EXPECT_NEAR(placed.objective.at("max_over_mean"), placed.after.max_over_mean_mean, 1e-9);
        EXPECT_LE(placed.bound.at("max_over_mean"), placed.objective.at("max_over_mean"));
        for (int layer = 1; layer < 3; ++layer)
          ASSERT_EQ(sizes_of(placed.placement.layer(layer)), sizes_of(placed.placement.layer(0)));
        const PlaceResult moved =
            place(random_profile(seed + 7777, 3, experts), topology,
                  {.redundant_experts = copies, .from = placed.placement, .max_moves = 3});
        for (int layer = 0; layer < 3; ++layer)
          ASSERT_EQ(sizes_of(moved.placement.layer(layer)), sizes_of(placed.placement.layer(layer)));
      }
}

TEST(Place, WithGroupsKeepsEachInANodeWhateverRanksAreCalledAndSlotsAreSharedAndCanBeMovedOnFrom) {
  for (int copies = 1; copies <= 7; ++copies) {
    SCOPED_TRACE(copies);
    const Topology topology = Topology::uniform(2, 2, {450, 0}, {50, 0});
    const PlaceResult placed =
        place(random_profile(3, 4, 12), topology, {.redundant_experts = copies, .num_groups = 4});
    for (int layer = 1; layer < 4; ++layer)
      EXPECT_EQ(sizes_of(placed.placement.layer(layer)), sizes_of(placed.placement.layer(0)));
    const PlaceResult moved =
        place(random_profile(4, 4, 12), topology,
              {.redundant_experts = copies, .num_groups = 4, .from = placed.placement, .max_moves = 6});
    for (const Placement& placement : {placed.placement, moved.placement})
      for (int layer = 0; layer < 4; ++layer)
        for (ExpertId expert : indices<ExpertId>(12))
          for (RankId rank : placement.layer(layer).homes(expert))
            EXPECT_EQ(
                topology.node_of(rank),
                topology.node_of(placed.placement.layer(layer).owner(ExpertId(expert.value() / 3 * 3))));
  }
}

TEST(Place, FromAPlacementWithoutCopiesFillsTheFreeSlotsThatCapacitiesAllow) {
  const RoutingProfile profile = random_profile(2, 3, 7);
  const Topology topology({.node_of_rank = {0, 0, 0, 0, 0}, .capacities = {1, 2, 2, 2, 3}});
  const PlaceResult placed = place(
      profile, topology, {.redundant_experts = 2, .from = Placement::contiguous(3, 7, 5), .max_moves = 100});
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_GT(num_homes(placed.placement.layer(layer)), 7);
    EXPECT_LE(num_homes(placed.placement.layer(layer)), 9);
    for (RankId rank : indices<RankId>(5))
      EXPECT_LE(sizes_of(placed.placement.layer(layer))[rank.offset()],
                static_cast<std::size_t>(*topology.capacity(rank)));
  }
}

// Parses N from "all of them need N moves"; -1 if missing.
int moves_for_all(const std::string& missing) {
  const std::string before = "all of them need ";
  const std::size_t at = missing.find(before);
  return at == std::string::npos ? -1 : std::stoi(missing.substr(at + before.size()));
}

TEST(Place, FromAPlacementSaysHowManyCopiesTheMovesMadeAndHowManyMovesMakeAll) {
  const RoutingProfile profile = random_profile(2, 3, 16);
  const Topology topology = Topology::uniform(1, 4);
  PlaceOptions options{.redundant_experts = 4, .from = Placement::contiguous(3, 16, 4), .max_moves = 5};
  const PlaceResult few = place(profile, topology, options);
  int copies = 0;
  for (int layer = 0; layer < 3; ++layer) copies += num_homes(few.placement.layer(layer)) - 16;
  ASSERT_LT(copies, 12);
  EXPECT_TRUE(
      few.missing_copies.starts_with("only " + std::to_string(copies) + " of the 12 requested redundant"))
      << few.missing_copies;
  EXPECT_EQ(few.notes.back(), few.missing_copies);
  options.max_moves = moves_for_all(few.missing_copies);
  ASSERT_GE(options.max_moves, 12) << few.missing_copies;
  const PlaceResult all = place(profile, topology, options);
  EXPECT_TRUE(all.missing_copies.empty()) << all.missing_copies;
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(num_homes(all.placement.layer(layer)), 20);
}

TEST(Place, RefusesToStartFromWhatCapacitiesGroupsOrCopiesForbid) {
  const RoutingProfile profile = random_profile(0, 2, 8);
  const Placement from = Placement::contiguous(2, 8, 4);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              place(profile, Topology({.node_of_rank = {0, 0, 0, 0}, .capacities = {4, 4, 1, 4}}),
                    {.from = from, .max_moves = 1});
            }),
            "from: has 2 experts on rank 2 in layer 0; allowed: at most 1, the capacity of the rank");
  const Placement turned(
      std::vector<LayerPlacement>(2, LayerPlacement({{0}, {2}, {1}, {3}, {0}, {2}, {1}, {3}}, 4)));
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              place(profile, Topology::uniform(2, 2), {.num_groups = 4, .from = turned, .max_moves = 1});
            }),
            "from: has experts of group 0 on nodes 0 and 1 in layer 0; allowed: a placement whose groups are "
            "each on one node");
  const PlaceResult copies = place(profile, Topology::uniform(1, 4), {.redundant_experts = 4});
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              place(profile, Topology::uniform(1, 4),
                    {.redundant_experts = 3, .from = copies.placement, .max_moves = 1});
            }),
            "from: has 12 physical experts in layer 0; allowed: at most 11: 8 experts and 3 redundant ones");
}

struct ProgressLog {
  std::vector<double> objectives;
  std::vector<double> bounds;
  std::vector<double> seconds;

  PlaceResult place_and_log(const RoutingProfile& profile, const Topology& topology, PlaceOptions options) {
    options.limits.progress = [this](double objective, double bound, double second) {
      objectives.push_back(objective);
      bounds.push_back(bound);
      seconds.push_back(second);
    };
    return place(profile, topology, options);
  }
};

TEST(Place, JointlyTellsMillisecondsAlone) {
  const RoutingProfile profile = random_profile(4, 3, 12);
  ProgressLog progress;
  const PlaceResult placed = progress.place_and_log(profile, Topology::uniform(2, 2, {100, 1}, {10, 3}),
                                                    {.objective = Objective::joint});
  ASSERT_FALSE(progress.objectives.empty());
  EXPECT_NEAR(progress.objectives.back(), placed.objective.at("joint_ms"), 1e-9);
  for (double objective : progress.objectives) EXPECT_LT(objective, 2 * placed.objective.at("joint_ms"));
}

TEST(Place, WithCopiesTellsNothingOfTheProblemsThatRenameRanks) {
  ProgressLog progress;
  const Topology topology = Topology::uniform(2, 4, {450, 0}, {50, 0});
  progress.place_and_log(random_profile(1, 3, 16), topology, {.redundant_experts = 8});
  EXPECT_TRUE(progress.objectives.empty());
}

// The first stage (clusters) takes much longer than the second (ranks).
TEST(Place, TellsSecondsSinceTheFirstStageBegan) {
  ProgressLog progress;
  progress.place_and_log(random_profile(1, 12, 64), Topology::uniform(1, 8), {});
  ASSERT_EQ(progress.seconds.size(), 2u);
  EXPECT_GT(progress.seconds[1], progress.seconds[0]);
}

TEST(Place, ExactIsNoWorseThanFastAndItsBoundHolds) {
  if (!has_exact_solver()) GTEST_SKIP() << "built without the integer-program solver";
  const RoutingProfile profile = random_profile(3, 2, 8);
  const Topology topology = Topology::uniform(1, 4);
  const PlaceResult fast = place(profile, topology);
  const PlaceResult exact =
      place(profile, topology, {.solver = Solver::exact, .limits = {.time_limit_s = 10}});
  EXPECT_LE(exact.objective.at("balance"), fast.objective.at("balance") + 1e-9);
  EXPECT_GE(exact.objective.at("balance"), fast.bound.at("balance") - 1e-9);
  EXPECT_TRUE(exact.proven_optimal);
}

TEST(Place, SaysOfWhichProblemTheBoundOfFreeSizesIs) {
  // In each of three layers, one expert has as much load as all others. It is best alone on a rank, and then
  // the totals of the two ranks differ.
  const auto bound_of = [](int experts) {
    std::vector<std::int64_t> loads;
    for (int i = 0; i < 3 * experts; ++i) loads.push_back(i % experts == 0 ? 10 * (experts - 1) : 10);
    const auto square = static_cast<std::size_t>(experts) * static_cast<std::size_t>(experts);
    const RoutingProfile profile(3, experts, loads, std::vector<std::int64_t>(2 * square, 1));
    const PlaceResult placed = place(profile, Topology::uniform(1, 2), {.sizes = ClusterSizes::free});
    EXPECT_EQ(placed.notes.size(), 1u);
    EXPECT_NE(placed.notes[0].find("sizes of all layers were chosen together"), std::string::npos);
    return placed.bound_of.at("balance");
  };
  const std::string each = "all placements with an expert or more on each rank in each layer, ";
  EXPECT_EQ(bound_of(4), each + "and as many on each rank over all layers (Eq. 13)");
  EXPECT_EQ(bound_of(18), each + "whether or not each rank has as many over all layers (Eq. 13)");
}

TEST(Place, ExactSaysWhereTheAnswerIsTheFastSolvers) {
  if (!has_exact_solver()) GTEST_SKIP() << "built without the integer-program solver";
  const RoutingProfile profile = random_profile(3, 4, 64);
  const Topology topology = Topology::uniform(2, 20, {100, 1}, {10, 3});
  const PlaceOptions options{.objective = Objective::joint, .limits = {.time_limit_s = 5}};
  PlaceOptions exactly = options;
  exactly.solver = Solver::exact;
  const PlaceResult fast = place(profile, topology, options);
  const PlaceResult placed = place(profile, topology, exactly);
  EXPECT_EQ(placed.solver, Solver::fast);
  ASSERT_EQ(placed.notes.size(), 1u);
  EXPECT_NE(placed.notes[0].find("homes and bound are the fast solver's"), std::string::npos);
  EXPECT_EQ(placed.objective, fast.objective);
  EXPECT_EQ(placed.bound, fast.bound);
  const PlaceResult small = place(random_profile(3, 2, 8), Topology::uniform(1, 2), exactly);
  EXPECT_EQ(small.solver, Solver::exact);
  EXPECT_TRUE(small.notes.empty());
}

TEST(Place, WithoutTheExactSolverSaysSo) {
  if (has_exact_solver()) GTEST_SKIP() << "built with the integer-program solver";
  EXPECT_FALSE(message_of<Unsupported>([] {
                 place(random_profile(3, 2, 8), Topology::uniform(1, 4), {.solver = Solver::exact});
               }).empty());
}

std::string refusal(const PlaceOptions& options, const Topology& topology = Topology::uniform(1, 4)) {
  return message_of<InvalidArgument>([&] { place(random_profile(0, 2, 8), topology, options); });
}

TEST(Place, RefusesOptionsThatContradictEachOther) {
  EXPECT_EQ(refusal({.sizes = ClusterSizes::free, .redundant_experts = 4}),
            "sizes: free does not work with redundant experts; allowed: equal");
  EXPECT_EQ(refusal({.objective = Objective::joint, .redundant_experts = 4, .num_groups = 2}),
            "objective: joint does not work with expert groups; allowed: two-stage");
  EXPECT_EQ(
      refusal({.objective = Objective::joint, .redundant_experts = 4, .dispatch = Dispatch::fixed}),
      "dispatch: 'static' uses copies unevenly, but objective joint assumes even use; allowed: even, or "
      "objective two-stage");
  EXPECT_EQ(refusal({.solver = Solver::exact, .num_groups = 2}),
            "solver: exact does not work with expert groups; allowed: fast");
  EXPECT_EQ(refusal({.max_moves = 3}),
            "max_moves: is 3, but there is no placement to move from; allowed: 0, or from, a placement to "
            "start at");
  EXPECT_EQ(refusal({.from = Placement::contiguous(2, 8, 4), .max_moves = -1}),
            "max_moves: is -1; allowed: 0 or more: how many experts may get another home");
  EXPECT_EQ(refusal({.solver = Solver::exact, .from = Placement::contiguous(2, 8, 4), .max_moves = 1}),
            "solver: exact does not work with a placement to start from; allowed: fast");
  EXPECT_EQ(refusal({.from = Placement::contiguous(2, 8, 2), .max_moves = 1}),
            "from: has 2 layers of 8 experts on 2 ranks; allowed: 2 layers of 8 experts on 4 ranks");
}

TEST(Place, RefusesAllPairsWhereTheyHaveNoPart) {
  const PairObjective total = PairObjective::total;
  EXPECT_EQ(refusal({.pairs = total, .from = Placement::contiguous(2, 8, 4), .max_moves = 1}),
            "pairs: 'total' does not work with a placement to start from; allowed: worst");
  EXPECT_EQ(
      refusal({.traffic = TrafficModel::dispatch_combine, .pairs = total, .redundant_experts = 4}),
      "pairs: 'total' needs to know which rank each token comes from, which the recording does not say; "
      "allowed: worst, or source counts (from a trace)");
  const RoutingProfile counts(2, 4, {1, 2, 3, 4, 5, 6, 7, 8}, {});
  for (const std::size_t recordings : {1u, 2u})
    EXPECT_EQ(
        message_of<InvalidArgument>([&] {
          place(std::vector<RoutingProfile>(recordings, counts), Topology::uniform(1, 2), {.pairs = total});
        }),
        "pairs: 'total' needs transitions between layers, but the profile has none (it was made without "
        "them, or from counts or steps); allowed: worst");
  const RoutingProfile profile = random_profile(0, 2, 8);
  for (const PlaceOptions& options : {PlaceOptions{.pairs = total},
                                      {.objective = Objective::joint, .pairs = total},
                                      {.pairs = total, .redundant_experts = 4},
                                      {.traffic = TrafficModel::dispatch_combine, .pairs = total}})
    EXPECT_NO_THROW(place(profile, Topology::uniform(1, 4), options));
}

TEST(Place, RefusesMoreCopiesThanRanksCanHoldOfDifferentExperts) {
  const auto refused = [](int copies, int groups, const Topology& topology, int experts) {
    return message_of<Infeasible>([&] {
      place(random_profile(0, 1, experts), topology, {.redundant_experts = copies, .num_groups = groups});
    });
  };
  EXPECT_EQ(refused(5, 1, Topology::uniform(1, 2), 4),
            "5 redundant experts: a rank would hold an expert twice, which a placement cannot express; at "
            "most 4 fit with 4 experts on 2 ranks");
  EXPECT_EQ(refused(3, 10, Topology::uniform(3, 1), 10),
            "3 redundant experts: a rank would hold an expert twice, which a placement cannot express; at "
            "most 0 fit with 10 experts in 10 groups on 3 ranks");
  EXPECT_NO_THROW(place(random_profile(0, 1, 4), Topology::uniform(1, 2), {.redundant_experts = 4}));
  EXPECT_NO_THROW(place(random_profile(0, 1, 10), Topology::uniform(3, 1), {.num_groups = 10}));
}

TEST(Place, RefusesNumbersThatMakeNoSense) {
  EXPECT_EQ(refusal({.redundant_experts = -1}), "redundant_experts: is -1; allowed: 0 or more");
  EXPECT_EQ(refusal({.num_groups = 0}), "groups: is 0; allowed: 1 or more");
  EXPECT_EQ(
      refusal({.num_groups = 3}),
      "groups: 8 experts cannot form 3 groups of equal size; allowed: a divisor of the number of experts");
  EXPECT_EQ(refusal({.limits = {.time_limit_s = 0}}), "time_limit: is 0 s; allowed: above 0");
  EXPECT_EQ(refusal({.limits = {.relative_gap = 1}}), "gap: is 1; allowed: 0 or more, below 1");
  EXPECT_EQ(refusal({.cost = {.assignment_us = -1}}), "cost: an assignment of -1 us; allowed: 0..1e+09");
  EXPECT_EQ(refusal({.cost = {.assignment_us = 1e300}}),
            "cost: an assignment of 1e+300 us; allowed: 0..1e+09");
  EXPECT_EQ(refusal({.cost = {.assignment_bytes = 1e300}}),
            "cost: an assignment of 1e+300 bytes; allowed: 0..1e+12");
}

TEST(Place, RefusesATopologyThatTheExpertsDoNotFit) {
  EXPECT_EQ(
      refusal({}, Topology::uniform(1, 9)),
      "ranks: 9 ranks are more than 8 physical experts: some rank would have none; allowed: up to 8, or "
      "redundant experts");
  EXPECT_EQ(message_of<Infeasible>([] {
              place(random_profile(0, 2, 8), Topology({.node_of_rank = {0, 0}, .capacities = {3, 4}}));
            }),
            "8 physical experts a layer, but all ranks together have capacity for 7");
  EXPECT_EQ(message_of<Infeasible>([] {
              place(random_profile(0, 2, 8), Topology({.node_of_rank = {0, 0}, .capacities = {4, 20}}),
                    {.redundant_experts = 4});
            }),
            "rank 0 has capacity for 4 physical experts a layer, but gets 6 slots, since slots are shared "
            "out evenly; raise its capacity, or use fewer redundant experts");
  EXPECT_EQ(refusal({.num_groups = 2}, Topology({.node_of_rank = {0, 1, 0, 1}})),
            "topology: has nodes of different sizes or ranks out of order, but expert groups stay in a node; "
            "allowed: nodes with equally many ranks, numbered node by node");
}

TEST(Place, RefusesAProfileThatDoesNotSayWhatTheModelNeeds) {
  const RoutingProfile counts(2, 4, {1, 2, 3, 4, 5, 6, 7, 8}, {});
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              place(counts, Topology::uniform(1, 2), {.objective = PlaceOptions::Objective::joint});
            }),
            "traffic: objective joint counts transitions between layers, and the profile has none (it was "
            "made without them, or from counts); allowed: a profile with transitions, or dispatch-combine, "
            "which needs loads alone");
  const SourceCounts sources = even_source_counts(counts, 2);
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { place(counts, Topology::uniform(1, 2), {.sources = sources}); }),
      "sources: apply only to traffic dispatch_combine; allowed: to leave them out, or traffic "
      "dispatch_combine");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              place(counts, Topology::uniform(1, 4),
                    {.traffic = TrafficModel::dispatch_combine, .sources = sources});
            }),
            "sources: have 2 layers, 2 ranks and 4 experts; allowed: 2 layers, 4 ranks and 4 experts");
}

TEST(Place, OfOneLayerNeedsNoTransitions) {
  const PlaceResult placed = place(RoutingProfile(1, 4, {9, 1, 1, 9}, {}), Topology::uniform(1, 2));
  EXPECT_EQ(placed.objective.at("balance"), 0);
  EXPECT_TRUE(placed.proven_optimal);
}

}  // namespace
}  // namespace evenkeel
