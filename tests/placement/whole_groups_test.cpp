// Placements that keep a model's groups of experts whole; `permute` accepts no others.
#include "evenkeel/placement/whole_groups.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/plan/contiguous_order.h"
#include "tests/placement/small_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

// After renumbering, the experts of each group must again form one group.
void expect_whole_groups(const LayerPlacement& layer, int num_groups) {
  const std::vector<ExpertId> order = contiguous_order(layer);
  const std::size_t size = order.size() / static_cast<std::size_t>(num_groups);
  for (std::size_t id = 0; id < order.size(); ++id)
    EXPECT_EQ(order[id].offset() / size, order[id / size * size].offset() / size) << "new id " << id;
}

TEST(Place, KeepsAModelsGroupsWholeWhateverTheNodes) {
  const RoutingProfile profile = random_profile(1, 3, 48);
  for (const auto& [groups, nodes, ranks_per_node] :
       std::vector<std::array<int, 3>>{{4, 1, 2}, {4, 2, 2}, {4, 1, 8}, {4, 2, 8}, {8, 2, 2}, {3, 2, 3}}) {
    SCOPED_TRACE(testing::Message() << groups << " groups, " << nodes << " nodes of " << ranks_per_node);
    const int ranks = nodes * ranks_per_node;
    const Topology topology = Topology::uniform(nodes, ranks_per_node, {450, 0}, {50, 0});
    PlaceOptions options;
    const std::string said = keep_groups_whole({.count = groups, .chosen = 2}, 48, ranks, options);
    EXPECT_NE(said.find("groups of experts: the experts of a group stay together"), std::string::npos);
    const PlaceResult placed = place(profile, topology, options);
    for (int layer = 0; layer < 3; ++layer) expect_whole_groups(placed.placement.layer(layer), groups);
    options.from = placed.placement;
    options.max_moves = 10;
    const PlaceResult moved = place(random_profile(2, 3, 48), topology, options);
    for (int layer = 0; layer < 3; ++layer) expect_whole_groups(moved.placement.layer(layer), groups);
  }
}

TEST(Place, LeavesGroupsAloneWhereNoCheckpointIsPermutedToThem) {
  for (const PlaceOptions& as_asked :
       {PlaceOptions{.redundant_experts = 4}, PlaceOptions{.sizes = ClusterSizes::free}}) {
    PlaceOptions options = as_asked;
    EXPECT_EQ(keep_groups_whole({.count = 4, .chosen = 2}, 48, 4, options), "");
    EXPECT_EQ(options.num_groups, 1);
  }
  PlaceOptions options;
  EXPECT_EQ(keep_groups_whole({.count = 4, .chosen = 4}, 48, 4, options), "");
  const std::string said = keep_groups_whole({.count = 4, .chosen = 2}, 48, 6, options);
  EXPECT_NE(said.find("6 ranks cannot hold them whole: permute refuses this placement"), std::string::npos);
  EXPECT_FALSE(options.whole_groups);
  options.objective = PlaceOptions::Objective::joint;
  EXPECT_THROW(keep_groups_whole({.count = 4, .chosen = 2}, 48, 4, options), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
