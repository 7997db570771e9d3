// The machines known by name.
#include "evenkeel/topology/presets.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(TopologyPreset, NamesMakeTheMachineTheyDescribe) {
  for (const TopologyPreset& preset : topology_presets()) {
    SCOPED_TRACE(preset.name);
    const Topology topology = preset_topology(std::string(preset.name));
    EXPECT_EQ(topology.name(), preset.name);
    EXPECT_EQ(topology.num_nodes(), preset.num_nodes);
    EXPECT_EQ(topology.num_ranks(), preset.num_nodes * preset.ranks_per_node);
    EXPECT_EQ(topology.has_uniform_links(), preset.num_nodes == 1);
    EXPECT_NE(preset.source.find("https://"), std::string_view::npos);
    EXPECT_TRUE(is_topology_preset(preset.name));
  }
}

TEST(TopologyPreset, HasThePublishedBandwidthOfOneDirection) {
  const Topology two = preset_topology("2x8xh100");
  EXPECT_EQ(two.link(RankId(0), RankId(7)).gigabytes_per_s, 450);  // half of 900 GB/s
  EXPECT_EQ(two.link(RankId(0), RankId(8)).gigabytes_per_s, 50);   // 400 Gb/s
  EXPECT_EQ(preset_topology("8xh200").link(RankId(0), RankId(1)).gigabytes_per_s, 450);
  const Topology rack = preset_topology("gb200-nvl72");
  EXPECT_EQ(rack.num_ranks(), 72);
  EXPECT_EQ(rack.link(RankId(0), RankId(71)).gigabytes_per_s, 900);  // half of 1.8 TB/s
}

TEST(TopologyPreset, UnknownNamesAreRefusedWithThoseThereAre) {
  EXPECT_FALSE(is_topology_preset("8xh300"));
  EXPECT_EQ(
      message_of<InvalidArgument>([] { preset_topology("8xh300"); }),
      "topology: there is no preset '8xh300'; allowed: 8xh100, 8xh200, 2x8xh100, 2x8xh200, gb200-nvl72");
}

}  // namespace
}  // namespace evenkeel
