// Among equally good placements of redundant experts, hotter experts get more copies.
#include <gmock/gmock.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/replicas/eplb.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "tests/placement/replicas/replica_cases.h"

namespace evenkeel {
namespace {

struct LayerOfCase {
  std::vector<double> loads;
  std::vector<std::int32_t> map;
  std::vector<int> copies;
};

LayerOfCase layer_of(const ReplicaCase& c, const ReplicaSolution& s, int layer) {
  const auto experts = static_cast<std::ptrdiff_t>(c.num_experts);
  const auto slots = static_cast<std::ptrdiff_t>(c.num_physical);
  LayerOfCase of;
  of.loads.assign(c.loads.begin() + layer * experts, c.loads.begin() + (layer + 1) * experts);
  of.map.assign(s.physical_to_logical.begin() + layer * slots,
                s.physical_to_logical.begin() + (layer + 1) * slots);
  of.copies.assign(of.loads.size(), 0);
  for (std::int32_t e : of.map) ++of.copies[static_cast<std::size_t>(e)];
  return of;
}

TEST(CopyOrder, TheHottestOfSixExpertsInTenSlotsHasTwoCopies) {
  const std::vector<double> weight = {200, 150, 100, 50, 25, 12, 12, 25, 50, 100, 150, 200};
  for (const int groups : {1, 3}) {
    const EplbMaps maps = rebalance_experts({2, 6, weight, 10, groups, 1, 2});
    EXPECT_EQ(maps.expert_count[0], 2);
    EXPECT_EQ(maps.expert_count[11], 2);
  }
}

// The expectation of vLLM's test of its policy: one expert has nearly all the load and gets two copies; its
// neighbour gets one.
TEST(CopyOrder, TheHottestHasMoreCopiesThanItsNeighbour) {
  const std::vector<double> weight = {1000, 1, 1, 1, 1, 1, 1, 1};
  const EplbMaps maps = rebalance_experts({1, 8, weight, 12, 2, 2, 4});
  EXPECT_EQ(maps.expert_count[0], 2);
  EXPECT_EQ(maps.expert_count[1], 1);
}

TEST(CopyOrder, HoldsWhereverAnyPlacementAsGoodKeepsIt) {
  int cases = 0;
  for (std::uint64_t seed = 0; cases < 1500; ++seed) {
    std::mt19937_64 random(seed);
    const ReplicaCase c = random_replica_case(random, 5, 4, false);
    if (c.num_layers != 1 || c.num_physical > 8) continue;
    ++cases;
    const ReplicaSolution s = replicate(c.problem());
    const LayerOfCase of = layer_of(c, s, 0);
    const CopyOrders ours = orders_of(of.loads, of.copies);
    if (ours.all_in_order) continue;
    const CopyOrders there_are = orders_within(c, s.max_over_mean[0] * (1 + 1e-13));
    EXPECT_FALSE(there_are.all_in_order) << "seed " << seed << ": " << c.text();
    EXPECT_EQ(ours.hottest_has_most, there_are.hottest_has_most) << "seed " << seed << ": " << c.text();
  }
}

TEST(CopyOrder, HoldsWithoutExceptionWhereCountsAreNotSearchedFor) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    ReplicaCase c;
    c.num_experts = draw_int(random, 20, 200);
    c.num_ranks = draw_int(random, 2, 40);
    c.num_physical = std::max(40, c.num_experts + draw_int(random, 0, std::min(100, c.num_experts)));
    c.loads = replica_loads(random, c.num_experts);
    const LayerOfCase of = layer_of(c, replicate(c.problem()), 0);
    EXPECT_TRUE(orders_of(of.loads, of.copies).all_in_order) << "seed " << seed << ": " << c.text();
  }
}

// The pool of each slot: its node if experts are bound to nodes, else 0.
std::vector<std::int64_t> pool_of_slots(const ReplicaCase& c, const ReplicaSolution& s) {
  std::vector<std::int64_t> pool;
  for (std::int64_t n = 0; n < c.num_nodes; ++n)
    for (std::int64_t r = n * c.num_ranks / c.num_nodes; r < (n + 1) * c.num_ranks / c.num_nodes; ++r)
      pool.insert(pool.end(), static_cast<std::size_t>(s.slots_per_rank[static_cast<std::size_t>(r)]),
                  c.num_groups > 1 ? n : 0);
  return pool;
}

double heaviest_if_exchanged(const ReplicaCase& c, ReplicaSolution s, int layer, std::int32_t a,
                             std::int32_t b) {
  const auto slots = static_cast<std::ptrdiff_t>(c.num_physical);
  for (auto at = s.physical_to_logical.begin() + layer * slots;
       at != s.physical_to_logical.begin() + (layer + 1) * slots; ++at)
    *at = *at == a ? b : *at == b ? a : *at;
  return max_over_mean_of(rank_loads_of(c, s, layer));
}

class CopyOrderOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, CopyOrderOf, testing::Bool(),
                         [](const auto& grouped) { return grouped.param ? "Groups" : "All"; });

TEST_P(CopyOrderOf, NoExchangeOfTwoExpertsMendsItWithoutAHeavierRank) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const ReplicaCase c = random_replica_case(random, 24, 9, GetParam());
    ReplicaSolution s;
    try {
      s = replicate(c.problem());
    } catch (const Infeasible&) {
      continue;
    }
    const std::vector<std::int64_t> pool = pool_of_slots(c, s);
    for (int l = 0; l < c.num_layers; ++l) {
      const LayerOfCase of = layer_of(c, s, l);
      const double heaviest = s.max_over_mean[static_cast<std::size_t>(l)];
      std::vector<std::int64_t> pool_of(of.loads.size());
      for (std::size_t slot = 0; slot < of.map.size(); ++slot)
        pool_of[static_cast<std::size_t>(of.map[slot])] = pool[slot];
      for (std::size_t a = 0; a < of.loads.size(); ++a)
        for (std::size_t b = 0; b < of.loads.size(); ++b) {
          if (of.loads[a] <= of.loads[b] || of.copies[a] >= of.copies[b] || pool_of[a] != pool_of[b])
            continue;
          EXPECT_GT(
              heaviest_if_exchanged(c, s, l, static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)),
              heaviest * (1 + 1e-13))
              << "seed " << seed << ", layer " << l << ", experts " << a << " and " << b << ": " << c.text();
        }
    }
  }
}

}  // namespace
}  // namespace evenkeel
