// The machines available by name.
#include "evenkeel/topology/presets.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(TopologyPreset, NamesMakeTheMachineTheyDescribe) {
  struct Named {
    const char* name;
    int nodes, ranks;
    const char* device;
  };
  for (const auto& [name, nodes, ranks, device] :
       {Named{"8xh100", 1, 8, "h100"}, Named{"1x8xh200", 1, 8, "h200"}, Named{"2x8xh100", 2, 16, "h100"},
        Named{"3x5xh200", 3, 15, "h200"}, Named{"512x8xh100", 512, 4096, "h100"},
        Named{"gb200-nvl72", 1, 72, ""}}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(is_topology_preset(name));
    const Topology topology = preset_topology(name);
    EXPECT_EQ(topology.name(), name);
    EXPECT_EQ(topology.num_nodes(), nodes);
    EXPECT_EQ(topology.num_ranks(), ranks);
    EXPECT_EQ(topology.has_uniform_links(), nodes == 1);
    EXPECT_EQ(preset_device(name), device);
  }
  for (const TopologyPreset& preset : topology_presets())
    EXPECT_NE(preset.source.find("https://"), std::string_view::npos);
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
  for (const char* name :
       {"8xh300", "h100", "xh100", "0xh100", "08xh100", "2x2x8xh100", "8x8xgb200-nvl72", "-8xh100",
        "65537xh100", "65536x2xh100", "99999999999xh100", "8 xh100", "8xh100 ", "2x8x"}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(is_topology_preset(name));
    EXPECT_EQ(preset_device(name), "");
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { preset_topology("8xh300"); }),
            "topology: there is no preset '8xh300'; allowed: 8xh100, 2x8xh100 (any NxMxh100 or NxMxh200: N "
            "nodes of "
            "M), gb200-nvl72");
}

}  // namespace
}  // namespace evenkeel
