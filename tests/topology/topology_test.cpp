// Ranks, nodes and links of a topology, and invalid topologies.
#include "evenkeel/topology/topology.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Description = Topology::Description;

std::string refusal(Description description) {
  return message_of<InvalidArgument>([&] { Topology{std::move(description)}; });
}

TEST(Topology, UniformFillsNodesInOrder) {
  const Topology topology = Topology::uniform(2, 3, {450, 1}, {50, 5});
  EXPECT_EQ(topology.num_ranks(), 6);
  EXPECT_EQ(topology.num_nodes(), 2);
  EXPECT_EQ(topology.node_of(RankId(2)), NodeId(0));
  EXPECT_EQ(topology.node_of(RankId(3)), NodeId(1));
  EXPECT_EQ(topology.node_of(RankId(5)), NodeId(1));
  EXPECT_TRUE(topology.same_node(RankId(3), RankId(5)));
  EXPECT_FALSE(topology.same_node(RankId(2), RankId(3)));
}

TEST(Topology, OfTwoLevelsChoosesTheLinkByNode) {
  const Topology topology = Topology::uniform(2, 2, {450, 1}, {50, 5});
  EXPECT_EQ(topology.link(RankId(0), RankId(1)), (Link{450, 1}));
  EXPECT_EQ(topology.link(RankId(1), RankId(2)), (Link{50, 5}));
}

TEST(Topology, WithAMatrixOfLinksTellsSenderFromReceiver) {
  const Topology topology(
      Description{.node_of_rank = {0, 0}, .links = {{-1, -1}, {10, 2}, {20, 4}, {-1, -1}}});
  EXPECT_EQ(topology.link(RankId(0), RankId(1)), (Link{10, 2}));
  EXPECT_EQ(topology.link(RankId(1), RankId(0)), (Link{20, 4}));
}

TEST(Topology, HasUniformLinksExactlyWhenAllPairsAreAlike) {
  std::mt19937_64 random(7);
  const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  int uniform = 0;
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 1 + draw(4);
    const int nodes = 1 + draw(ranks - 1);
    Description description{.within = {1.0 + draw(1), 0}, .across = {1.0 + draw(1), 0}};
    for (int rank = 0; rank < ranks; ++rank) description.node_of_rank.push_back(rank % nodes);
    if (draw(1) == 0)
      for (int pair = 0; pair < ranks * ranks; ++pair)
        description.links.push_back({1.0 + (draw(4) == 0 ? 1 : 0), 0});
    const Topology topology(description);
    bool alike = true;
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        if (from != to && topology.link(RankId(from), RankId(to)) != topology.link(RankId(0), RankId(1)))
          alike = false;
    uniform += alike ? 1 : 0;
    ASSERT_EQ(topology.has_uniform_links(), alike) << "round " << round;
  }
  EXPECT_GT(uniform, 100);
  EXPECT_LT(uniform, 1900);
}

TEST(Topology, SpeedsAreOneAndRoomsUnlimitedUnlessSaid) {
  const Topology plain = Topology::uniform(1, 2);
  EXPECT_EQ(plain.speed(RankId(1)), 1.0);
  EXPECT_EQ(plain.capacity(RankId(1)), std::nullopt);
  EXPECT_EQ(plain.devices_per_rank(), 1);
  const Topology said(
      Description{.node_of_rank = {0, 0}, .speeds = {1, 0.5}, .capacities = {4, 9}, .devices_per_rank = 2});
  EXPECT_EQ(said.speed(RankId(1)), 0.5);
  EXPECT_EQ(said.capacity(RankId(1)), 9);
  EXPECT_EQ(said.devices_per_rank(), 2);
}

TEST(Topology, RefusesNodesThatAreNotNumberedWithoutGaps) {
  EXPECT_EQ(refusal({}), "node_of_rank: is empty; allowed: the node of each rank");
  EXPECT_EQ(refusal({.node_of_rank = {0, -1}}), "node_of_rank[1]: is -1; allowed: 0..1, without gaps");
  EXPECT_EQ(refusal({.node_of_rank = {0, 2, 2}}),
            "node_of_rank: node 1 has no ranks; allowed: nodes numbered from 0 without gaps");
  EXPECT_EQ(refusal({.node_of_rank = {0, 5}}), "node_of_rank[1]: is 5; allowed: 0..1, without gaps");
  EXPECT_EQ(refusal({.node_of_rank = {-3}}), "node_of_rank[0]: is -3; allowed: 0..0, without gaps");
}

TEST(Topology, RefusesLinksThatNoMachineHas) {
  EXPECT_EQ(refusal({.node_of_rank = {0}, .within = {0, 0}}),
            "within: has a bandwidth of 0 GB/s; allowed: 1e-06..1e+09");
  EXPECT_EQ(refusal({.node_of_rank = {0}, .across = {1, -1}}),
            "across: has a latency of -1 us; allowed: 0..1e+09");
  EXPECT_EQ(refusal({.node_of_rank = {0}, .within = {std::numeric_limits<double>::quiet_NaN(), 0}}),
            "within: has a bandwidth of nan GB/s; allowed: 1e-06..1e+09");
  EXPECT_EQ(refusal({.node_of_rank = {0}, .within = {1, std::numeric_limits<double>::infinity()}}),
            "within: has a latency of inf us; allowed: 0..1e+09");
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .links = {{1, 0}}}),
            "links: has 1 links for 2 ranks; allowed: 2 x 2");
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .links = {{}, {1, 0}, {-5, 0}, {}}}),
            "links[1][0]: has a bandwidth of -5 GB/s; allowed: 1e-06..1e+09");
}

TEST(Topology, RefusesNumbersFromWhichCostsWouldOverflow) {
  for (const double bandwidth : {5e-324, 1e-308, 9e-7, 1.1e9, 1e308}) {
    SCOPED_TRACE(bandwidth);
    const std::string said = fmt::format("has a bandwidth of {} GB/s; allowed: 1e-06..1e+09", bandwidth);
    EXPECT_EQ(refusal({.node_of_rank = {0}, .within = {bandwidth, 0}}), "within: " + said);
    EXPECT_EQ(refusal({.node_of_rank = {0}, .across = {bandwidth, 0}}), "across: " + said);
    EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .links = {{}, {bandwidth, 0}, {}, {}}}),
              "links[0][1]: " + said);
  }
  EXPECT_EQ(refusal({.node_of_rank = {0}, .across = {1, 1e300}}),
            "across: has a latency of 1e+300 us; allowed: 0..1e+09");
  for (const double speed : {1e-308, 9e-7, 1.1e6, 1e308})
    EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .speeds = {1, speed}}),
              fmt::format("speeds[1]: is {}; allowed: 1e-06..1e+06", speed));
  EXPECT_NO_THROW(
      Topology({.node_of_rank = {0, 1}, .within = {1e-6, 1e9}, .across = {1e9, 0}, .speeds = {1e-6, 1e6}}));
}

TEST(Topology, RefusesSpeedsAndRoomsThatDoNotFit) {
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .speeds = {1}}), "speeds: has 1 numbers for 2 ranks");
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .speeds = {1, 0}}), "speeds[1]: is 0; allowed: 1e-06..1e+06");
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .capacities = {1, 2, 3}}), "rooms: has 3 numbers for 2 ranks");
  EXPECT_EQ(refusal({.node_of_rank = {0, 0}, .capacities = {1, 0}}), "rooms[1]: is 0; allowed: 1 or more");
  EXPECT_EQ(refusal({.node_of_rank = {0}, .devices_per_rank = 0}),
            "devices_per_rank: is 0; allowed: 1 or more");
  EXPECT_EQ(message_of<InvalidArgument>([] { Topology::uniform(0, 4); }),
            "num_nodes: is 0; allowed: 1 or more");
  EXPECT_EQ(message_of<InvalidArgument>([] { Topology::uniform(1, -4); }),
            "ranks_per_node: is -4; allowed: 1 or more");
}

}  // namespace
}  // namespace evenkeel
