// rebalance_experts(): the shapes and meaning of EPLB's three maps, and refused input.
#include "evenkeel/placement/replicas/eplb.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "evenkeel/base/error.h"
#include "tests/placement/replicas/replica_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

struct EplbCase {
  std::vector<double> weight;
  EplbProblem problem;
};

EplbCase random_eplb_case(int seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
  };
  EplbCase c;
  EplbProblem& p = c.problem;
  p.num_layers = draw(1, 3);
  p.num_nodes = draw(1, 4);
  p.num_groups = seed % 3 == 0 ? draw(1, 9) : p.num_nodes * draw(1, 3);
  p.num_gpus = p.num_nodes * draw(1, 4);
  p.num_experts = p.num_groups * draw(1, 6);
  p.num_replicas = ((p.num_experts + p.num_gpus - 1) / p.num_gpus + draw(0, 2)) * p.num_gpus;
  for (int l = 0; l < p.num_layers; ++l)
    for (double load : replica_loads(random, p.num_experts)) c.weight.push_back(load);
  p.weight = c.weight;
  return c;
}

TEST(RebalanceExperts, TheLogicalMapListsTheSlotsOfEachExpertAndThenMinusOneAsWideAsTheMostCopies) {
  for (int seed = 0; seed < 500; ++seed) {
    const EplbCase c = random_eplb_case(seed);
    const EplbMaps maps = rebalance_experts(c.problem);
    const auto layers = static_cast<std::size_t>(c.problem.num_layers);
    const auto experts = static_cast<std::size_t>(c.problem.num_experts);
    const auto slots = static_cast<std::size_t>(c.problem.num_replicas);
    const auto width = static_cast<std::size_t>(maps.max_count);
    EXPECT_EQ(maps.max_count, std::ranges::max(maps.expert_count)) << "seed " << seed;
    ASSERT_EQ(maps.physical_to_logical.size(), layers * slots);
    ASSERT_EQ(maps.expert_count.size(), layers * experts);
    ASSERT_EQ(maps.logical_to_physical.size(), layers * experts * width);
    for (std::size_t l = 0; l < layers; ++l)
      for (std::size_t e = 0; e < experts; ++e) {
        std::vector<std::int64_t> wanted;
        for (std::size_t s = 0; s < slots; ++s)
          if (maps.physical_to_logical[l * slots + s] == static_cast<std::int64_t>(e))
            wanted.push_back(static_cast<std::int64_t>(s));
        EXPECT_EQ(maps.expert_count[l * experts + e], static_cast<std::int64_t>(wanted.size()));
        wanted.resize(width, -1);
        const auto row = std::span(maps.logical_to_physical).subspan((l * experts + e) * width, width);
        EXPECT_TRUE(std::ranges::equal(row, wanted)) << "seed " << seed << " layer " << l << " expert " << e;
      }
  }
}

TEST(RebalanceExperts, IsGlobalWhereGroupsAreNotAMultipleOfNodes) {
  const std::vector<double> weight = {100, 1, 1, 1, 1, 1};
  EplbProblem problem{1, 6, weight, 8, 3, 2, 4};
  EXPECT_FALSE(problem.is_hierarchical());
  const EplbMaps global = rebalance_experts(problem);
  EXPECT_LT(global.max_over_mean[0], 1.4);  // copies of expert 0 on ranks of both nodes
  problem.num_groups = 2;
  EXPECT_TRUE(problem.is_hierarchical());
  EXPECT_GT(rebalance_experts(problem).max_over_mean[0], 1.9);  // all copies are on one node
}

TEST(RebalanceExperts, RefusesWhatTheOriginalAsserts) {
  const std::vector<double> weight = {1, 2, 3, 4};
  const auto message = [&](EplbProblem p) {
    p.weight = weight;
    return message_of<Error>([&] { rebalance_experts(p); });
  };
  EXPECT_NO_THROW(rebalance_experts({1, 4, weight, 8, 2, 2, 4}));
  EXPECT_THAT(message({1, 4, {}, 7, 2, 2, 4}),
              testing::HasSubstr("num_replicas: 7 is not a multiple of num_gpus = 4"));
  EXPECT_THAT(message({1, 4, {}, 9, 2, 2, 3}),
              testing::HasSubstr("num_gpus: 3 is not a multiple of num_nodes = 2"));
  EXPECT_THAT(message({1, 4, {}, 9, 3, 3, 3}),
              testing::HasSubstr("experts: 4 is not a multiple of num_groups = 3"));
  EXPECT_THAT(message({1, 4, {}, 8, 2, 0, 4}), testing::HasSubstr("num_nodes"));
  EXPECT_THAT(message({1, 4, {}, 8, 0, 2, 4}), testing::HasSubstr("num_groups"));
  EXPECT_THAT(message({1, 4, {}, 8, 2, 2, 0}), testing::HasSubstr("num_gpus"));
  EXPECT_THAT(message({1, 4, {}, 2, 1, 1, 1}), testing::HasSubstr("2 slots are too few for 4 experts"));
}

}  // namespace
}  // namespace evenkeel
