#include "evenkeel/plan/dispatch.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/plan/internal/python_random.h"

namespace evenkeel {
namespace {

using internal::PythonRandom;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<double> shares_of(const CopyShares& shares, ExpertId expert, int layer = 0) {
  const auto of_expert = shares.of(layer, expert);
  return {of_expert.begin(), of_expert.end()};
}

// Golden numbers from CPython 3.11: r = random.Random(42), then r._randbelow, r.sample and r.shuffle.
TEST(PythonRandom, DrawsWhatPythonDraws) {
  std::mt19937 twister = PythonRandom::seeded(42);
  PythonRandom random(twister);
  std::vector<std::uint32_t> below;
  for (const std::uint32_t n : {2U, 3U, 7U, 10U, 32U, 1000U}) below.push_back(random.below(n));
  EXPECT_THAT(below, ElementsAre(0, 0, 5, 4, 15, 228));
  EXPECT_THAT(random.sample(5, 3), ElementsAre(1, 0, 2));
  EXPECT_THAT(random.sample(30, 4), ElementsAre(23, 28, 17, 2));
  std::vector<std::uint32_t> numbers(8);
  std::iota(numbers.begin(), numbers.end(), 0U);
  random.shuffle(numbers);
  EXPECT_THAT(numbers, ElementsAre(3, 2, 4, 1, 5, 7, 0, 6));
}

// Four ranks in two nodes. Expert 0 is on ranks 0, 1 and 2; expert 1 on ranks 2 and 3, both in node 1; expert
// 2 on rank 3 only.
TEST(CopyShares, NearestTakesOnesOwnThenTheFirstOfTheNodeThenAll) {
  const Placement placement({LayerPlacement({{0, 1, 2}, {3, 2}, {3}}, 4)});
  const Topology two_nodes = Topology::uniform(2, 2);
  const CopyShares nearest(placement, two_nodes, Dispatch::nearest);
  // Ranks 0, 1 and 2 use their own copy; rank 3 uses the copy in its node.
  EXPECT_THAT(shares_of(nearest, ExpertId(0)), ElementsAre(0.25, 0.25, 0.5));
  // Ranks 0 and 1 have no copy nearby and split evenly. Homes keep their order.
  EXPECT_THAT(shares_of(nearest, ExpertId(1)), ElementsAre(0.5, 0.5));
  EXPECT_THAT(shares_of(nearest, ExpertId(2)), ElementsAre(1));
  // With all ranks in one node, only a rank's own copy counts as nearest.
  const CopyShares flat(placement, Topology::uniform(1, 4), Dispatch::nearest);
  EXPECT_THAT(shares_of(flat, ExpertId(0)), Pointwise(DoubleEq(), {1.0 / 3, 1.0 / 3, 1.0 / 3}));
}

TEST(CopyShares, AddUpToOneUnderEveryRule) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    const int nodes = 1 << (round % 3);
    const Topology topology = Topology::uniform(nodes, 4);
    std::vector<std::vector<int>> homes(16);
    for (auto& of_expert : homes)
      for (int rank = 0; rank < topology.num_ranks(); ++rank)
        if (random() % 3 == 0 || (rank + 1 == topology.num_ranks() && of_expert.empty()))
          of_expert.push_back(rank);
    const Placement placement({LayerPlacement(homes, topology.num_ranks())});
    for (const Dispatch dispatch : dispatches) {
      const CopyShares shares(placement, topology, dispatch);
      for (ExpertId expert : indices<ExpertId>(16)) {
        const auto of_expert = shares.of(0, expert);
        EXPECT_NEAR(std::reduce(of_expert.begin(), of_expert.end()), 1, 1e-12) << name_of(dispatch);
      }
    }
  }
}

TEST(CopyShares, DrawsGoOnFromLayerToLayerAndThroughLayersThatAreLeftOut) {
  const LayerPlacement layer({{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 0}}, 6);
  const Topology topology = Topology::uniform(1, 6);
  const Placement both({layer, layer}, LayerNumbers({0, 1}));
  const CopyShares shares(both, topology, Dispatch::fixed);
  bool differ = false;
  for (ExpertId expert : indices<ExpertId>(6))
    differ = differ || shares_of(shares, expert, 0) != shares_of(shares, expert, 1);
  EXPECT_TRUE(differ);
  // A layer missing from the placement is dealt round-robin: slots 0, 1, ... hold experts 0, 1, ... mod 6.
  const LayerPlacement round({{0, 3}, {0, 3}, {1, 4}, {1, 4}, {2, 5}, {2, 5}}, 6);
  const CopyShares of_second(Placement({layer}, LayerNumbers({1})), topology, Dispatch::fixed);
  const CopyShares of_both(Placement({round, layer}, LayerNumbers({0, 1})), topology, Dispatch::fixed);
  const std::vector<int> second = {1};
  const CopyShares chosen = of_both.of_rows(second);
  for (ExpertId expert : indices<ExpertId>(6)) {
    EXPECT_EQ(shares_of(of_second, expert), shares_of(of_both, expert, 1));
    EXPECT_EQ(shares_of(chosen, expert), shares_of(of_both, expert, 1));
  }
}

TEST(CopyShares, RefusesAnotherNumberOfRanksAndAnUnknownRule) {
  const Placement placement = Placement::contiguous(1, 4, 2);
  EXPECT_THROW(CopyShares(placement, Topology::uniform(1, 4), Dispatch::even), InvalidArgument);
  EXPECT_EQ(parse_dispatch("static"), Dispatch::fixed);
  try {
    parse_dispatch("fixed", "--dispatch");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "--dispatch: 'fixed'; allowed: even, static, nearest");
  }
}

}  // namespace
}  // namespace evenkeel
