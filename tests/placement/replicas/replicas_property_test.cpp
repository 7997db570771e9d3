// Laws of replicate(): placements are complete and obey the rules, its figures are right, and no placement is
// better than its bound.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "tests/placement/replicas/replica_cases.h"

namespace evenkeel {
namespace {

std::span<const std::int32_t> layer_map(const ReplicaCase& c, const ReplicaSolution& s, int layer) {
  const auto slots = static_cast<std::size_t>(c.num_physical);
  return std::span(s.physical_to_logical).subspan(static_cast<std::size_t>(layer) * slots, slots);
}

template <class Check>
void for_cases(int count, bool grouped, Check check) {
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const ReplicaCase c =
        random_replica_case(random, seed % 5 == 0 ? 300 : 24, seed % 7 == 0 ? 70 : 9, grouped);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.text());
    ReplicaSolution solution;
    try {
      solution = replicate(c.problem());
    } catch (const Infeasible&) {
      ASSERT_TRUE(grouped);  // every case has enough slots, so only groups can make it infeasible
      continue;
    }
    check(c, solution);
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

class Replicas : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Replicas, testing::Bool(),
                         [](const auto& grouped) { return grouped.param ? "Grouped" : "Flat"; });

TEST_P(Replicas, EveryExpertHasACopyAndEverySlotAnExpert) {
  for_cases(800, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    for (int l = 0; l < c.num_layers; ++l) {
      const auto map = layer_map(c, s, l);
      EXPECT_EQ(std::set(map.begin(), map.end()).size(), static_cast<std::size_t>(c.num_experts));
      EXPECT_GE(std::ranges::min(map), 0);
      EXPECT_LT(std::ranges::max(map), c.num_experts);
    }
  });
}

TEST_P(Replicas, RanksDifferByASlotAtMost) {
  for_cases(800, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    ASSERT_EQ(s.slots_per_rank.size(), static_cast<std::size_t>(c.num_ranks));
    for (std::int32_t slots : s.slots_per_rank) {
      EXPECT_GE(slots, c.num_physical / c.num_ranks);
      EXPECT_LE(slots, (c.num_physical + c.num_ranks - 1) / c.num_ranks);
    }
  });
}

// True if groups can be packed such that every node has at least as many experts as its fullest rank has
// slots.
bool groups_are_enough(const ReplicaCase& c, const ReplicaSolution& s) {
  if (c.num_groups == 1) return true;
  const int group_size = c.num_experts / c.num_groups;
  int needed = 0;
  for (std::int64_t n = 0; n < c.num_nodes; ++n) {
    std::int32_t fullest = 0, slots = 0;
    for (std::int64_t r = n * c.num_ranks / c.num_nodes; r < (n + 1) * c.num_ranks / c.num_nodes; ++r) {
      fullest = std::max(fullest, s.slots_per_rank[static_cast<std::size_t>(r)]);
      slots += s.slots_per_rank[static_cast<std::size_t>(r)];
    }
    if (slots == 0) continue;
    const int of_node = (fullest + group_size - 1) / group_size;
    if (of_node > slots / group_size) return false;
    needed += of_node;
  }
  return needed <= c.num_groups;
}

TEST_P(Replicas, NoRankHoldsAnExpertTwiceWhereItsPoolCanHaveEnoughExperts) {
  for_cases(800, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    for (int l = 0; l < c.num_layers; ++l) {
      std::size_t slot = 0;
      for (int r = 0; r < c.num_ranks; ++r) {
        const auto capacity = static_cast<std::size_t>(s.slots_per_rank[static_cast<std::size_t>(r)]);
        const auto on_rank = layer_map(c, s, l).subspan(slot, capacity);
        slot += capacity;
        const std::size_t different = std::set(on_rank.begin(), on_rank.end()).size();
        if (groups_are_enough(c, s)) {
          EXPECT_EQ(different, capacity);
        }
      }
    }
  });
}

TEST_P(Replicas, TheReportedImbalanceIsThatOfTheSlots) {
  for_cases(800, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    for (int l = 0; l < c.num_layers; ++l)
      EXPECT_NEAR(s.max_over_mean[static_cast<std::size_t>(l)], max_over_mean_of(rank_loads_of(c, s, l)),
                  1e-9);
  });
}

TEST_P(Replicas, TheBoundLiesBetweenTheMeanAndTheResult) {
  for_cases(800, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    for (std::size_t l = 0; l < static_cast<std::size_t>(c.num_layers); ++l) {
      EXPECT_LE(s.bound[l], s.max_over_mean[l]);
      EXPECT_GE(s.bound[l], 1 - 1e-9);
    }
  });
}

TEST_P(Replicas, AgainIsTheSameToTheSlot) {
  for_cases(100, GetParam(), [](const ReplicaCase& c, const ReplicaSolution& s) {
    EXPECT_EQ(replicate(c.problem()).physical_to_logical, s.physical_to_logical);
  });
}

TEST(ReplicasGrouped, TheCopiesOfAGroupAreOnOneNode) {
  for_cases(800, true, [](const ReplicaCase& c, const ReplicaSolution& s) {
    for (int l = 0; l < c.num_layers; ++l) {
      std::vector<std::set<std::int64_t>> nodes(static_cast<std::size_t>(c.num_groups));
      std::size_t slot = 0;
      for (std::int64_t n = 0; n < c.num_nodes; ++n)
        for (std::int64_t r = n * c.num_ranks / c.num_nodes; r < (n + 1) * c.num_ranks / c.num_nodes; ++r)
          for (std::int32_t k = 0; k < s.slots_per_rank[static_cast<std::size_t>(r)]; ++k) {
            const int expert = layer_map(c, s, l)[slot++];
            nodes[static_cast<std::size_t>(expert / (c.num_experts / c.num_groups))].insert(n);
          }
      for (const auto& of_group : nodes) EXPECT_EQ(of_group.size(), 1U);
    }
  });
}

// A case small enough for brute force.
ReplicaCase small_case(int seed, bool grouped) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed) * 1000 + attempt);
    ReplicaCase c = random_replica_case(random, 5, 4, grouped);
    if (c.num_layers == 1 && c.num_physical <= 8) return c;
  }
}

TEST_P(Replicas, NoPlacementIsBelowTheBound) {
  for (int seed = 0; seed < 1500; ++seed) {
    const ReplicaCase c = small_case(seed, GetParam());
    const double best = best_of_all(c);
    if (std::isinf(best)) continue;
    const ReplicaSolution s = replicate(c.problem());
    ASSERT_LE(s.bound[0], best + 1e-9) << "seed " << seed << ": " << c.text();
  }
}

TEST(ReplicasErrors, SayWhatIsWrongAndWhatWouldBeRight) {
  const auto message = [](ReplicaCase c) -> std::string {
    try {
      replicate(c.problem());
    } catch (const Error& error) {
      return error.type() + ": " + error.what();
    }
    return "none";
  };
  const ReplicaCase good{1, 4, {1, 2, 3, 4}, 6, 2, 2, 2};
  EXPECT_EQ(message(good), "none");
  ReplicaCase c = good;
  c.num_physical = 3;
  EXPECT_THAT(message(c), testing::HasSubstr("3 slots are too few for 4 experts"));
  c = good;
  c.loads[2] = -1;
  EXPECT_THAT(message(c), testing::HasSubstr("layer 0, expert 2: -1"));
  c.loads[2] = std::nan("");
  EXPECT_THAT(message(c), testing::HasSubstr("layer 0, expert 2: nan"));
  c.loads = {1e308, 1e308, 1e308, 0};
  EXPECT_THAT(message(c), testing::HasSubstr("add up to inf"));
  c.loads = {1, 2};
  EXPECT_THAT(message(c), testing::HasSubstr("2 numbers"));
  c = good;
  c.num_groups = 3;
  EXPECT_THAT(message(c), testing::HasSubstr("4 experts cannot form 3 groups"));
  c = good;
  c.num_nodes = 3;
  EXPECT_THAT(message(c), testing::HasSubstr("3 nodes for 2 ranks"));
  c = {1, 4, {1, 2, 3, 4}, 6, 3, 3, 2};
  EXPECT_THAT(message(c), testing::HasSubstr("2 groups of experts do not fit on 3 nodes"));
  for (int ReplicaCase::*size : {&ReplicaCase::num_layers, &ReplicaCase::num_experts, &ReplicaCase::num_ranks,
                                 &ReplicaCase::num_nodes, &ReplicaCase::num_groups}) {
    c = good;
    c.*size = 0;
    EXPECT_THAT(message(c), testing::HasSubstr("InvalidArgument"));
  }
}

TEST(ReplicasPlacement, TheHomesOfAnExpertAreTheRanksOfItsCopies) {
  const ReplicaCase c{1, 3, {6, 1, 1}, 4, 2, 1, 1};
  const Placement placement = placement_of(replicate(c.problem()), c.num_experts);
  EXPECT_THAT(placement.layer(0).homes(ExpertId(0)), testing::ElementsAre(RankId(0), RankId(1)));
  EXPECT_EQ(placement.layer(0).homes(ExpertId(1)).size(), 1U);
}

TEST(ReplicasPlacement, AnExpertTwiceOnARankIsRefused) {
  const ReplicaCase c{1, 1, {6}, 4, 2, 1, 1};
  EXPECT_THROW(placement_of(replicate(c.problem()), c.num_experts), Infeasible);
}

}  // namespace
}  // namespace evenkeel
