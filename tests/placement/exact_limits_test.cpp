// Exact solves that a limit ends early, their progress reports, and refused input.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/oracle.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const SourceCounts no_sources;

// A profile so large that no method finishes within a test.
RoutingProfile large_profile(int layers, int experts) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> draw(6.0, 1.0);
  std::vector<std::int64_t> loads;
  for (int i = 0; i < layers * experts; ++i) loads.push_back(static_cast<std::int64_t>(draw(random)) * 8 + 1);
  std::vector<std::int64_t> transitions;
  for (int i = 0; i < (layers - 1) * experts * experts; ++i)
    transitions.push_back(static_cast<std::int64_t>(draw(random)));
  return {layers, experts, std::move(loads), std::move(transitions)};
}

Clustering contiguous(int layers, int experts, int ranks) {
  Clustering clustering;
  for (int layer = 0; layer < layers; ++layer) {
    auto& of_layer = clustering.cluster_of.emplace_back();
    for (int e = 0; e < experts; ++e) of_layer.push_back(e * ranks / experts);
  }
  return clustering;
}

RankAssignment identity(int layers, int ranks) {
  RankAssignment assignment;
  for (int layer = 0; layer < layers; ++layer) {
    auto& of_layer = assignment.rank_of.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) of_layer.push_back(rank);
  }
  return assignment;
}

class ExactLimits : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  }

  const RoutingProfile profile_ = large_profile(3, 32);
  const Topology topology_ = Topology::uniform(2, 4, {.gigabytes_per_s = 4}, {.gigabytes_per_s = 1});
  const PlacementProblem problem_{.profile = profile_, .topology = topology_, .sources = no_sources};
  const Clustering start_ = contiguous(3, 32, 8);
};

// Under a limit of 0.6 s: expects an answer soon, no worse than `before`, with a lower bound.
void expect_best_so_far(double before, const std::function<Claim()>& solve) {
  const auto begin = std::chrono::steady_clock::now();
  const Claim found = solve();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 6);
  EXPECT_LE(found.objective, before * (1 + 1e-12));
  EXPECT_LE(found.bound, found.objective);
  EXPECT_GE(found.bound, 0);
}

TEST_F(ExactLimits, ATimeLimitGivesTheBestSoFarAndABoundBelowIt) {
  const SolveLimits soon{.time_limit_s = 0.6};
  const RankAssignment given = identity(3, 8);
  const Placement start = placement_of(start_, given, 8);
  Clustering found;
  expect_best_so_far(balance_objective(problem_, start),
                     [&] { return found = cluster_exact(problem_, start_, soon); });
  EXPECT_NEAR(found.objective, balance_objective(problem_, placement_of(found, given, 8)), 1e-6);
  expect_best_so_far(pair_objective(problem_, start), [&] {
    const RankAssignment ranks = assign_ranks_exact(problem_, start_, given, soon);
    EXPECT_GT(ranks.bound, 0);
    return ranks;
  });
  expect_best_so_far(joint_objective_ms(problem_, start), [&] {
    const JointSolution homes = place_jointly_exact(problem_, {.rank_of_expert = start_.cluster_of}, soon);
    EXPECT_GT(homes.bound_ms, 0);
    return homes;
  });
}

std::stop_token stopped() {
  std::stop_source stop;
  stop.request_stop();
  return stop.get_token();
}

TEST_F(ExactLimits, AStopThatWasAskedForBeforeReturnsTheStart) {
  const Clustering found = cluster_exact(problem_, start_, {.stop = stopped()});
  EXPECT_EQ(found.cluster_of, start_.cluster_of);
  EXPECT_FALSE(found.proven_optimal);
  EXPECT_LE(found.bound, found.objective);
}

// The solver is stopped at once, so the proof comes from the given start.
TEST_F(ExactLimits, WhatTheStartHasProvenStaysProven) {
  const RoutingProfile profile = large_profile(3, 10);
  const Topology topology = Topology::uniform(2, 2, {.gigabytes_per_s = 4}, {.gigabytes_per_s = 1});
  for (ClusterSizes sizes : {ClusterSizes::equal, ClusterSizes::free}) {
    const PlacementProblem problem{
        .profile = profile, .topology = topology, .sizes = sizes, .sources = no_sources};
    const Clustering clusters = cluster_fast(problem);
    ASSERT_TRUE(clusters.proven_optimal);
    const Clustering same = cluster_exact(problem, clusters, {.stop = stopped()});
    EXPECT_EQ(same.objective, clusters.objective);
    EXPECT_TRUE(same.proven_optimal);
    EXPECT_EQ(same.sizes_chosen_together, clusters.sizes_chosen_together);
  }
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = no_sources};
  const Clustering clusters = cluster_fast(problem);
  const RankAssignment ranks = assign_ranks_fast(problem, clusters);
  ASSERT_TRUE(ranks.proven_optimal);
  EXPECT_TRUE(assign_ranks_exact(problem, clusters, ranks, {.stop = stopped()}).proven_optimal);
}

TEST_F(ExactLimits, BoundsAreNeverBelowTheFastSolvers) {
  const Clustering clusters = cluster_fast(problem_);
  EXPECT_GE(cluster_exact(problem_, clusters, {.stop = stopped()}).bound, clusters.bound);
  const RankAssignment ranks = assign_ranks_fast(problem_, clusters);
  EXPECT_GE(assign_ranks_exact(problem_, clusters, ranks, {.stop = stopped()}).bound, ranks.bound);
  // Without a start, the same bound is found.
  EXPECT_GE(assign_ranks_exact(problem_, clusters, {}, {.stop = stopped()}).bound, ranks.bound * (1 - 1e-9));
  const JointSolution homes = place_jointly_fast(problem_);
  EXPECT_GE(place_jointly_exact(problem_, homes, {.stop = stopped()}).bound_ms, homes.bound_ms);
  EXPECT_GE(place_jointly_exact(problem_, {}, {.stop = stopped()}).bound_ms, homes.bound_ms * (1 - 1e-9));
}

TEST_F(ExactLimits, NothingIsProvenForBeingSmall) {
  const PlacementProblem small{.profile = profile_,
                               .topology = topology_,
                               .sources = no_sources,
                               .cost = {.assignment_us = 1e-12, .assignment_bytes = 1e-12}};
  const JointSolution found =
      place_jointly_exact(small, {.rank_of_expert = start_.cluster_of}, {.stop = stopped()});
  EXPECT_LT(found.objective_ms, 1e-6);
  EXPECT_LT(found.bound_ms, found.objective_ms * 0.99);
  EXPECT_FALSE(found.proven_optimal);
}

TEST_F(ExactLimits, AProgramOfTooManyVariablesIsNotTriedAndTheAnswerSaysSo) {
  const RoutingProfile profile = large_profile(3, 80);
  const Topology topology = Topology::uniform(2, 40, {.gigabytes_per_s = 4}, {.gigabytes_per_s = 1});
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = no_sources};
  const Clustering clusters = contiguous(3, 80, 80);
  const JointSolution homes =
      place_jointly_exact(problem, {.rank_of_expert = clusters.cluster_of}, {.stop = stopped()});
  EXPECT_FALSE(homes.program_tried);
  EXPECT_EQ(homes.rank_of_expert, clusters.cluster_of);
  EXPECT_TRUE(place_jointly_exact(problem_, {.rank_of_expert = start_.cluster_of}, {.stop = stopped()})
                  .program_tried);
  const RankAssignment ranks = assign_ranks_exact(problem, clusters, {}, {.stop = stopped()});
  EXPECT_FALSE(ranks.program_tried);
}

// Renumbers the clusters of each layer. Their numbers are arbitrary until they are assigned to ranks.
Clustering with_names_turned(Clustering clustering, int ranks) {
  for (std::size_t layer = 0; layer < clustering.cluster_of.size(); ++layer)
    for (int& cluster : clustering.cluster_of[layer])
      cluster = (cluster + 3 * static_cast<int>(layer)) % ranks;
  return clustering;
}

TEST_F(ExactLimits, FreeSizesBeginAtTheClustersGivenWhateverTheirNames) {
  const PlacementProblem free{
      .profile = profile_, .topology = topology_, .sizes = ClusterSizes::free, .sources = no_sources};
  const Clustering clusters = cluster_fast(free);
  ASSERT_LT(clusters.objective, balance_objective(free, placement_of(start_, identity(3, 8), 8)));
  for (const SolveLimits& limits : {SolveLimits{.stop = stopped()}, SolveLimits{.time_limit_s = 0.5}}) {
    const Clustering found = cluster_exact(free, with_names_turned(clusters, 8), limits);
    EXPECT_LE(found.objective, clusters.objective);
    EXPECT_EQ(found.sizes_chosen_together, clusters.sizes_chosen_together);
  }
}

TEST_F(ExactLimits, AStopEndsARunningSolve) {
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    stop.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  const RankAssignment found =
      assign_ranks_exact(problem_, start_, identity(3, 8), {.time_limit_s = 60, .stop = stop.get_token()});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  EXPECT_LE(found.bound, found.objective);
}

TEST_F(ExactLimits, ProgressNeverPassesTheAnswer) {
  double best = std::numeric_limits<double>::infinity();
  double highest_bound = 0;
  int calls = 0;
  const auto watch = [&](double objective, double bound, double seconds) {
    best = std::min(best, objective);
    highest_bound = std::max(highest_bound, bound);
    EXPECT_GE(seconds, 0);
    ++calls;
  };
  const Clustering found = cluster_exact(problem_, start_, {.time_limit_s = 0.9, .progress = watch});
  EXPECT_GT(calls, 0);
  EXPECT_GE(best, found.objective - 1e-3);
  EXPECT_LE(highest_bound, found.objective + 1e-3);
}

TEST_F(ExactLimits, AGapEndsTheSolveWithinIt) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20; ++i) {
    const SmallProblem small = random_case(random);
    const PlacementProblem problem = small.problem();
    try {
      const Clustering found = cluster_exact(problem, {}, {.relative_gap = 0.025});
      const RankAssignment ranks = assign_ranks_exact(problem, found, {}, {.relative_gap = 0.025});
      EXPECT_LE(ranks.objective - ranks.bound, 0.0251 * ranks.objective + 1e-9) << text_of(small);
    } catch (const Infeasible&) {
    }
  }
}

TEST_F(ExactLimits, ClustersThatNoRanksSuitAreInfeasible) {
  const RoutingProfile profile = large_profile(1, 4);
  const Topology topology = Topology::uniform(1, 2);
  const PlacementProblem problem{
      .profile = profile, .topology = topology, .sizes = ClusterSizes::free, .sources = no_sources};
  EXPECT_THAT(
      [&] {
        assign_ranks_exact(problem, {.cluster_of = {{0, 1, 1, 1}}}, {}, {});
      },
      ThrowsMessage<Infeasible>(HasSubstr("choose the sizes together")));
}

TEST_F(ExactLimits, WhatDoesNotFitTheProfileIsNamed) {
  EXPECT_THAT([&] { cluster_exact(problem_, contiguous(2, 32, 8), {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 2 layers")));
  EXPECT_THAT([&] { assign_ranks_exact(problem_, start_, identity(2, 8), {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 2 layers")));
  RankAssignment twice = identity(3, 8);
  twice.rank_of[1][0] = 1;
  EXPECT_THAT([&] { assign_ranks_exact(problem_, start_, twice, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one cluster in layer 1")));
}

TEST(ExactWithoutSolver, SaysHowToGetIt) {
  if (has_exact_solver()) GTEST_SKIP() << "built with HiGHS";
  const RoutingProfile profile = large_profile(2, 4);
  const Topology topology = Topology::uniform(1, 2);
  const PlacementProblem problem{.profile = profile, .topology = topology, .sources = no_sources};
  const auto says = ThrowsMessage<Unsupported>(HasSubstr("tools/setup.sh highs && make build"));
  EXPECT_THAT([&] { cluster_exact(problem, {}, {}); }, says);
  EXPECT_THAT([&] { assign_ranks_exact(problem, contiguous(2, 4, 2), {}, {}); }, says);
  EXPECT_THAT([&] { place_jointly_exact(problem, {}, {}); }, says);
}

}  // namespace
}  // namespace evenkeel
