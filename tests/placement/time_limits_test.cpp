// place() on a thousand ranks ends soon after its time limit or a stop request, with a valid answer. At this
// size a single solver step would take longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel {
namespace {

using Solver = PlaceOptions::Solver;
using Objective = PlaceOptions::Objective;

constexpr int kRanks = 1024;
constexpr int kLayers = 2;

struct Candidate {
  std::string name;
  PlaceOptions options;
  int num_nodes = 128;
  int num_experts = kRanks;
};

RoutingProfile profile_of(int experts) {
  std::mt19937_64 random(7);
  const auto size = static_cast<std::size_t>(experts);
  std::vector<std::int64_t> loads(kLayers * size);
  for (std::int64_t& load : loads) load = static_cast<std::int64_t>(random() % 1000);
  std::vector<std::int64_t> transitions(size * size);
  for (std::int64_t& each : transitions) each = static_cast<std::int64_t>(random() % 100);
  return RoutingProfile(kLayers, experts, std::move(loads), std::move(transitions));
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> candidates;
  for (const auto traffic : {TrafficModel::layer_to_layer, TrafficModel::dispatch_combine})
    for (const auto pairs : {PairObjective::worst_pair, PairObjective::total}) {
      const std::string name = std::string(traffic == TrafficModel::layer_to_layer ? "layers" : "dispatch") +
                               (pairs == PairObjective::worst_pair ? " worst" : " total");
      candidates.push_back({name, {.traffic = traffic, .pairs = pairs}});
      candidates.push_back({name + " of one node", {.traffic = traffic, .pairs = pairs}, 1});
    }
  candidates.push_back({"free sizes", {.sizes = ClusterSizes::free}, 128, kRanks + 512});
  candidates.push_back({"joint", {.objective = Objective::joint}});
  candidates.push_back({"joint with copies", {.objective = Objective::joint, .redundant_experts = 512}});
  candidates.push_back({"copies", {.redundant_experts = 512}});
  candidates.push_back({"groups", {.redundant_experts = 512, .num_groups = 256}});
  candidates.push_back({"from",
                        {.from = Placement::contiguous(kLayers, 2 * kRanks, kRanks), .max_moves = 1000},
                        128,
                        2 * kRanks});
  if (!has_exact_solver()) return candidates;
  candidates.push_back({"exact", {.solver = Solver::exact}});
  candidates.push_back({"exact joint", {.solver = Solver::exact, .objective = Objective::joint}});
  return candidates;
}

void expect_holds(const Candidate& candidate, const PlaceResult& placed) {
  for (int layer = 0; layer < kLayers; ++layer) {
    std::size_t held = 0;
    for (RankId rank : indices<RankId>(kRanks)) held += placed.placement.layer(layer).natives(rank).size();
    EXPECT_EQ(held, static_cast<std::size_t>(candidate.num_experts + candidate.options.redundant_experts));
  }
  for (const auto& [name, objective] : placed.objective) EXPECT_LE(placed.bound.at(name), objective) << name;
}

class TimeLimits : public testing::TestWithParam<Candidate> {};

TEST_P(TimeLimits, EndSoonAfterTheirTime) {
  Candidate candidate = GetParam();
  candidate.options.limits.time_limit_s = 0.2;
  const RoutingProfile profile = profile_of(candidate.num_experts);
  const Topology topology =
      Topology::uniform(candidate.num_nodes, kRanks / candidate.num_nodes, {450, 1}, {50, 5});
  const auto begin = std::chrono::steady_clock::now();
  const PlaceResult placed = place(profile, topology, candidate.options);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 2.5);
  expect_holds(candidate, placed);
  const bool says_so = std::ranges::any_of(placed.notes, [](const std::string& note) {
    return note == "the time limit of 0.2 s ended the search: this is the best so far";
  });
  EXPECT_EQ(says_so, placed.ended_by_time);
  // A stage may have used up its share of the time earlier.
  if (!placed.proven_optimal && placed.solve_ms >= 200) {
    EXPECT_TRUE(says_so);
  }
}

TEST_P(TimeLimits, EndSoonAfterTheyAreAskedTo) {
  Candidate candidate = GetParam();
  std::stop_source source;
  candidate.options.limits.stop = source.get_token();
  const RoutingProfile profile = profile_of(candidate.num_experts);
  const Topology topology =
      Topology::uniform(candidate.num_nodes, kRanks / candidate.num_nodes, {450, 1}, {50, 5});
  std::chrono::steady_clock::time_point asked;
  std::jthread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    asked = std::chrono::steady_clock::now();
    source.request_stop();
  });
  const PlaceResult placed = place(profile, topology, candidate.options);
  const auto end = std::chrono::steady_clock::now();
  asks.join();
  EXPECT_LT(std::chrono::duration<double>(end - asked).count(), 2);
  expect_holds(candidate, placed);
}

// 61 layers with loads only, and a number of copies to be chosen.
TEST(TimeLimits, HoldForAllNumbersOfCopiesTogether) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> loads(61 * std::size_t{kRanks});
  for (std::int64_t& load : loads) load = static_cast<std::int64_t>(random() % 1000);
  const RoutingProfile profile(61, kRanks, std::move(loads), {});
  const auto begin = std::chrono::steady_clock::now();
  const CopyChoice choice =
      choose_copies(std::span(&profile, 1), Topology::uniform(1, kRanks), {.limits = {.time_limit_s = 1}});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 2.5);
  EXPECT_NEAR(choice.placed.solve_ms / 1e3, seconds, 0.05);
  EXPECT_GT(choice.tried.size(), 1);
  expect_holds({"auto", {.redundant_experts = choice.redundant_experts}}, choice.placed);
}

INSTANTIATE_TEST_SUITE_P(Place, TimeLimits, testing::ValuesIn(candidates()), [](const auto& candidate) {
  std::string name = candidate.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace evenkeel
