#include "evenkeel/placement/robust/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/incremental/incremental.h"
#include "tests/placement/replicas/replica_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;

struct RobustCase {
  int num_recordings = 2;
  ReplicaCase of_each = {};  // loads [W, L, E]

  RobustProblem problem() const { return {.num_recordings = num_recordings, .of_each = of_each.problem()}; }

  std::size_t layer_size() const { return static_cast<std::size_t>(of_each.num_experts); }
  std::span<const double> loads(int recording, int layer) const {
    return std::span(of_each.loads)
        .subspan(static_cast<std::size_t>(recording * of_each.num_layers + layer) * layer_size(),
                 layer_size());
  }
  std::vector<double> sum() const {
    std::vector<double> sum(static_cast<std::size_t>(of_each.num_layers) * layer_size(), 0);
    for (std::size_t i = 0; i < of_each.loads.size(); ++i) sum[i % sum.size()] += of_each.loads[i];
    return sum;
  }
};

int first_slot(const ReplicaCase& c, int rank) {
  return static_cast<int>(std::int64_t{rank} * c.num_physical / c.num_ranks);
}

// The max/mean of one layer for one recording, computed by walking the slots.
double max_over_mean(const RobustCase& c, std::span<const std::int32_t> expert_in, int recording, int layer) {
  const auto loads = c.loads(recording, layer);
  const double total = std::reduce(loads.begin(), loads.end(), 0.0);
  if (total == 0) return 1;
  double heaviest = 0;
  for (int rank = 0; rank < c.of_each.num_ranks; ++rank) {
    double load = 0;
    for (int slot = first_slot(c.of_each, rank); slot < first_slot(c.of_each, rank + 1); ++slot) {
      const std::int32_t e = expert_in[static_cast<std::size_t>(slot)];
      load += loads[static_cast<std::size_t>(e)] / static_cast<double>(std::ranges::count(expert_in, e));
    }
    heaviest = std::max(heaviest, load);
  }
  return heaviest / total * c.of_each.num_ranks;
}

double worst_recording(const RobustCase& c, std::span<const std::int32_t> expert_in, int layer) {
  double worst = 0;
  for (int w = 0; w < c.num_recordings; ++w) worst = std::max(worst, max_over_mean(c, expert_in, w, layer));
  return worst;
}

std::span<const std::int32_t> slots_of(const ReplicaSolution& solution, const RobustCase& c, int layer) {
  const auto slots = static_cast<std::size_t>(c.of_each.num_physical);
  return std::span(solution.physical_to_logical).subspan(static_cast<std::size_t>(layer) * slots, slots);
}

// The least max/mean of layer 0 in its worst recording, over all fillings.
double best_of_all(const RobustCase& c) {
  double best = std::numeric_limits<double>::infinity();
  for_all_fillings(c.of_each, [&](const std::vector<std::int32_t>& expert_in, const std::vector<int>&) {
    best = std::min(best, worst_recording(c, expert_in, 0));
  });
  return best;
}

RobustCase random_case(std::mt19937_64& random, int most_recordings, int most_layers, int most_experts,
                       int most_ranks, int most_copies) {
  RobustCase c{.num_recordings = draw_int(random, 1, most_recordings)};
  ReplicaCase& each = c.of_each;
  each.num_layers = draw_int(random, 1, most_layers);
  each.num_ranks = draw_int(random, 1, most_ranks);
  each.num_experts = draw_int(random, each.num_ranks, std::max(most_experts, each.num_ranks));
  each.num_physical = each.num_experts + draw_int(random, 0, most_copies);
  // At most as many slots per rank as there are experts.
  each.num_physical = std::min(each.num_physical, each.num_experts * each.num_ranks);
  for (int row = 0; row < c.num_recordings * each.num_layers; ++row) {
    const auto loads = replica_loads(random, each.num_experts);
    each.loads.insert(each.loads.end(), loads.begin(), loads.end());
  }
  return c;
}

RobustCase lognormal_case(int recordings, int layers, int experts, int copies, int ranks,
                          double correlation) {
  RobustCase c{.num_recordings = recordings};
  c.of_each = {.num_layers = layers,
               .num_experts = experts,
               .loads = std::vector<double>(static_cast<std::size_t>(recordings * layers * experts)),
               .num_physical = experts + copies,
               .num_ranks = ranks};
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (int l = 0; l < layers; ++l)
    for (int e = 0; e < experts; ++e) {
      const double common = normal(random);
      for (int w = 0; w < recordings; ++w)
        c.of_each.loads[static_cast<std::size_t>((w * layers + l) * experts + e)] =
            std::exp(std::sqrt(correlation) * common + std::sqrt(1 - correlation) * normal(random));
    }
  return c;
}

// The mean of max/mean over layers, for the worst recording.
double worst_mean(const RobustCase& c, const ReplicaSolution& solution) {
  double worst = 0;
  for (int w = 0; w < c.num_recordings; ++w) {
    double sum = 0;
    for (int l = 0; l < c.of_each.num_layers; ++l) sum += max_over_mean(c, slots_of(solution, c, l), w, l);
    worst = std::max(worst, sum / c.of_each.num_layers);
  }
  return worst;
}

TEST(RobustPlacement, SaysOfItselfWhatAWalkOverItsSlotsFinds) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 300; ++i) {
    const RobustCase c = random_case(random, 6, 3, 24, 6, 12);
    const RobustSolution robust = replicate_robustly(c.problem());
    for (int l = 0; l < c.of_each.num_layers; ++l) {
      const auto expert_in = slots_of(robust.placed, c, l);
      for (std::int32_t e = 0; e < c.of_each.num_experts; ++e)
        ASSERT_GE(std::ranges::count(expert_in, e), 1) << i;
      for (int rank = 0; rank < c.of_each.num_ranks; ++rank) {
        std::vector<std::int32_t> held(expert_in.begin() + first_slot(c.of_each, rank),
                                       expert_in.begin() + first_slot(c.of_each, rank + 1));
        std::ranges::sort(held);
        ASSERT_EQ(std::ranges::adjacent_find(held), held.end()) << i << ": rank " << rank << " twice";
      }
      for (int w = 0; w < c.num_recordings; ++w)
        EXPECT_NEAR(robust.max_over_mean[static_cast<std::size_t>(w * c.of_each.num_layers + l)],
                    max_over_mean(c, expert_in, w, l), 1e-9)
            << i;
      const auto at = static_cast<std::size_t>(l);
      EXPECT_NEAR(robust.placed.max_over_mean[at], worst_recording(c, expert_in, l), 1e-9) << i;
      EXPECT_LE(robust.placed.bound[at], robust.placed.max_over_mean[at]) << i;
    }
  }
}

TEST(RobustPlacement, OnTheWorstRecordingIsNeverBehindThePlacementOfTheSum) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 400; ++i) {
    RobustCase c = random_case(random, 5, 4, 20, 5, 10);
    if (i % 3 == 0 && c.of_each.num_ranks % 2 == 0 && c.of_each.num_experts % 4 == 0)
      c.of_each.num_nodes = 2, c.of_each.num_groups = 4;
    const std::vector<double> sum = c.sum();
    ReplicaProblem of_sum = c.of_each.problem();
    of_sum.loads = sum;
    ReplicaSolution placed_for_sum;
    try {
      placed_for_sum = replicate(of_sum);
    } catch (const Infeasible&) {
      continue;
    }
    EXPECT_LE(worst_mean(c, replicate_robustly(c.problem()).placed), worst_mean(c, placed_for_sum) + 1e-12)
        << i;
  }
}

TEST(RobustPlacement, IsAtItsBestOrCloseAndNoBoundIsAboveWhatBruteForceFinds) {
  std::mt19937_64 random(13);
  double gaps = 0;
  double worst_gap = 0;
  int at_best = 0;
  constexpr int cases = 400;
  for (int i = 0; i < cases; ++i) {
    RobustCase c = random_case(random, 3, 1, 6, 3, 2);
    if (i % 4 == 0) {
      c.of_each = {.num_experts = 4,
                   .loads = {},
                   .num_physical = i % 8 == 0 ? 4 : 8,
                   .num_ranks = 4,
                   .num_nodes = 2,
                   .num_groups = 2};
      for (int w = 0; w < c.num_recordings; ++w) {
        const auto loads = replica_loads(random, 4);
        c.of_each.loads.insert(c.of_each.loads.end(), loads.begin(), loads.end());
      }
    }
    const double best = best_of_all(c);
    const RobustSolution robust = replicate_robustly(c.problem());
    const double reached = robust.placed.max_over_mean[0];
    EXPECT_LE(robust.placed.bound[0], best * (1 + 1e-9)) << i << ": " << c.of_each.text();
    EXPECT_GE(reached, best * (1 - 1e-9)) << i;
    gaps += reached / best - 1;
    worst_gap = std::max(worst_gap, reached / best - 1);
    at_best += reached <= best * (1 + 1e-9);
  }
  RecordProperty("at_best", at_best);
  RecordProperty("mean_gap", std::to_string(gaps / cases));
  RecordProperty("worst_gap", std::to_string(worst_gap));
  // Measured: 394 are optimal; the gap is 0.03 % on average and 4 % at worst.
  EXPECT_GE(at_best, 390);
  EXPECT_LE(gaps / cases, 0.0006);
  EXPECT_LE(worst_gap, 0.06);
}

TEST(RobustPlacement, MovesNoMoreThanAllowedAndNeverMakesTheWorstRecordingOfALayerWorse) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 200; ++i) {
    const RobustCase c = random_case(random, 4, 3, 16, 4, 6);
    const RobustSolution robust = replicate_robustly(c.problem());
    RobustCase later = c;
    for (double& load : later.of_each.loads) load *= 1 + 0.01 * static_cast<double>(draw_int(random, 0, 80));
    const Placement live = placement_of(robust.placed, c.of_each.num_experts);
    const int allowed = draw_int(random, 0, 12);
    const IncrementalResult moved = place_incrementally({.current = live,
                                                         .loads = later.of_each.loads,
                                                         .max_moves = allowed,
                                                         .num_recordings = c.num_recordings});
    EXPECT_LE(moved.moves, allowed);
    int counted = 0;
    for (int l = 0; l < c.of_each.num_layers; ++l) {
      double before = 0;
      double after = 0;
      for (int w = 0; w < c.num_recordings; ++w) {
        before = std::max(before, max_over_mean_of(live.layer(l), later.loads(w, l)));
        after = std::max(after, max_over_mean_of(moved.placement.layer(l), later.loads(w, l)));
      }
      EXPECT_LE(after, before * (1 + 1e-9)) << i;
      EXPECT_NEAR(after, moved.max_over_mean[static_cast<std::size_t>(l)], 1e-9) << i;
      counted += new_homes(live.layer(l), moved.placement.layer(l));
    }
    EXPECT_EQ(counted, moved.moves) << i;
  }
}

TEST(RobustPlacement, RefusesWhatIsNoRecording) {
  RobustCase c = lognormal_case(2, 1, 4, 0, 2, 0.5);
  c.of_each.loads[5] = -1;
  EXPECT_THAT(message_of<InvalidArgument>([&] { replicate_robustly(c.problem()); }),
              HasSubstr("recording 1, layer 0, expert 1: -1"));
  c.of_each.loads.pop_back();
  EXPECT_THAT(message_of<InvalidArgument>([&] { replicate_robustly(c.problem()); }),
              HasSubstr("2 recordings x 1 layers x 4 experts"));
  c.num_recordings = 0;
  EXPECT_THAT(message_of<InvalidArgument>([&] { replicate_robustly(c.problem()); }),
              HasSubstr("num_recordings"));
}

// place() guarantees this as well, although it uses a different solver to place the sum without copies.
TEST(RobustPlacement, WithoutCopiesIsNeverBehindThePlacementOfTheSumEither) {
  std::mt19937_64 random(15);
  int ahead = 0;
  for (int i = 0; i < 300; ++i) {
    const int experts = draw_int(random, 6, 20);
    std::vector<RoutingProfile> recordings;
    for (int w = draw_int(random, 2, 4); w > 0; --w) {
      std::vector<std::int64_t> loads;
      for (int e = 0; e < 2 * experts; ++e) loads.push_back(draw_int(random, 1, 300));
      recordings.emplace_back(2, experts, std::move(loads), std::vector<std::int64_t>());
    }
    const Topology topology = Topology::uniform(1, draw_int(random, 2, 6));
    const auto worst = [&](PlaceOptions::Across across) {
      double most = 0;
      for (const RecordingQuality& each : place(recordings, topology, {.across = across}).per_recording)
        most = std::max(most, each.after.max_over_mean_mean);
      return most;
    };
    const double at_once = worst(PlaceOptions::Across::worst);
    const double of_sum = worst(PlaceOptions::Across::sum);
    EXPECT_LE(at_once, of_sum + 1e-12) << i;
    ahead += at_once < of_sum - 0.01;
  }
  EXPECT_GT(ahead, 200);
}

TEST(RobustPlacement, FindsDistinctRanksForCopiesOfFewExperts) {
  RobustCase c{.num_recordings = 2};
  c.of_each = {.num_experts = 2, .loads = {1967, 214, 612, 13585}, .num_physical = 4, .num_ranks = 3};
  EXPECT_NEAR(replicate_robustly(c.problem()).placed.max_over_mean[0], best_of_all(c), 1e-6);
}

RoutingProfile profile_of(const std::vector<std::int64_t>& loads) {
  return RoutingProfile(1, static_cast<int>(loads.size()), loads, {});
}

TEST(CopyChoice, TriesNumbersThatFillRanksEvenlyAndStopsWhereRanksAreLevel) {
  const std::vector<RoutingProfile> level = {profile_of({5, 5, 5, 5, 5, 5, 5, 5})};
  EXPECT_EQ(choose_copies(level, Topology::uniform(1, 4), {}).redundant_experts, 0);
  EXPECT_EQ(choose_copies(level, Topology::uniform(1, 4), {}).tried.size(), 1);
  EXPECT_EQ(choose_copies(level, Topology::uniform(1, 3), {}).tried.front().redundant_experts, 1);

  const std::vector<RoutingProfile> hot = {profile_of({400, 5, 5, 5, 5, 5, 5, 5})};
  const CopyChoice choice = choose_copies(hot, Topology::uniform(1, 4), {});
  EXPECT_EQ(choice.redundant_experts, 4);  // every rank gets a copy of the hottest expert
  for (const CopyChoice::Tried& each : choice.tried) {
    EXPECT_EQ((8 + each.redundant_experts) % 4, 0);
    EXPECT_DOUBLE_EQ(each.slots, (8.0 + each.redundant_experts) / 8);
  }
}

TEST(CopyChoice, SaysThatTheTimeLeftNumbersUntriedAndKeepsWhatWasPlaced) {
  std::vector<std::int64_t> loads(1024);
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i] = static_cast<std::int64_t>(i * i % 997 + 1);
  loads[0] = 100000;  // only copies can level this load
  const std::vector<RoutingProfile> one = {profile_of(loads)};
  const CopyChoice cut = choose_copies(one, Topology::uniform(1, 128), {.limits = {.time_limit_s = 1e-6}});
  EXPECT_EQ(cut.tried.size(), 1);
  EXPECT_THAT(cut.placed.notes,
              testing::Contains(HasSubstr("the time limit of 1e-06 s left no time to try larger numbers")));
  const CopyChoice whole = choose_copies(one, Topology::uniform(1, 128), {});
  EXPECT_THAT(whole.placed.notes, testing::Not(testing::Contains(HasSubstr("time limit"))));
  PlaceOptions same;
  same.redundant_experts = whole.redundant_experts;
  EXPECT_EQ(whole.placed.placement.layer(0), place(one, Topology::uniform(1, 128), same).placement.layer(0));
}

TEST(CopyChoice, OfSeveralRecordingsIsWhatTheWorstNeeds) {
  const std::vector<RoutingProfile> two = {profile_of({400, 5, 5, 5, 5, 5, 5, 5}),
                                           profile_of({5, 5, 5, 5, 5, 5, 5, 400})};
  const CopyChoice choice = choose_copies(two, Topology::uniform(1, 4), {});
  EXPECT_EQ(choice.redundant_experts, 4);
  ASSERT_GE(choice.tried.size(), 3);
  EXPECT_GT(choice.tried[1].max_over_mean, 1.2);   // two additional copies of each hot expert
  EXPECT_LT(choice.tried[2].max_over_mean, 1.02);  // each hot expert on every rank
  EXPECT_THAT(message_of<InvalidArgument>([] { choose_copies({}, Topology::uniform(1, 4), {}); }),
              HasSubstr("recordings"));
}

TEST(RobustPlacement, LevelsThreeRecordingsOfALargeModel) {
  const RobustCase c = lognormal_case(3, 4, 256, 32, 32, 0.5);
  EXPECT_LE(worst_mean(c, replicate_robustly(c.problem()).placed), 1.013);
}

}  // namespace
}  // namespace evenkeel
