#include "evenkeel/sim/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/topology/presets.h"
#include "tests/routing/message.h"
#include "tests/sim/recordings.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using testing::trace_recording;

Sweep swept(const Recording& recording, const CompareRequest& request, const char* over) {
  return sweep(std::span(&recording, 1), {}, request, over);
}

std::vector<std::string> values(const Sweep& sweep) {
  std::vector<std::string> all;
  for (const SweepPoint& point : sweep.points) all.push_back(point.value);
  return all;
}

TEST(Sweep, OverRanksKeepsNodesAsLargeAsTheyAre) {
  const Recording recording = trace_recording(1, 16, 2, 4000, 40, 1);
  const Sweep over =
      swept(recording, {.machine = {.topology = preset_topology("2x4xh100")}, .methods = "level"},
            "ranks=2,4,8,16,32");
  EXPECT_THAT(values(over), ElementsAre("2", "4", "8", "16", "32"));
  std::vector<std::pair<int, int>> shapes;
  for (const SweepPoint& point : over.points) {
    const Topology& topology = point.compared.machine.topology;
    shapes.emplace_back(topology.num_nodes(), topology.num_ranks());
    EXPECT_EQ(topology.description().across, preset_topology("2x4xh100").description().across);
  }
  EXPECT_THAT(shapes, ElementsAre(std::pair(1, 2), std::pair(1, 4), std::pair(2, 8), std::pair(4, 16),
                                  std::pair(8, 32)));
  EXPECT_EQ(over.points.back().compared.comparison.shape.groups, 2);
}

TEST(Sweep, SaysWhereAMethodStopsPaying) {
  const Recording recording = trace_recording(1, 16, 2, 4000, 40, 1);
  const Sweep over = swept(recording, {.machine = {.topology = Topology::uniform(1, 4)}, .methods = "level"},
                           "imbalance-threshold=1,1.05,100");
  ASSERT_EQ(over.methods.size(), 1U);
  EXPECT_EQ(over.methods[0].sentence, "pays from 1 to 1.05, and no longer at 100");
  EXPECT_EQ(over.methods[0].pays_from, "1");
  EXPECT_EQ(over.methods[0].stops_at, "100");
  EXPECT_EQ(over.bottleneck, "");  // the machine has no rates to time a step
}

TEST(Sweep, HasTheMethodsOfAllItsValues) {
  const Recording recording = trace_recording(1, 16, 2, 4000, 40, 1);
  const Sweep over = swept(recording, {.machine = {.topology = Topology::uniform(1, 4)}}, "ranks=1,4");
  EXPECT_LT(over.points[0].compared.summaries.size(), over.points[1].compared.summaries.size());
  EXPECT_EQ(over.methods.size() + 1, over.points[1].compared.summaries.size());
}

TEST(Sweep, SetsEachOfItsNumbers) {
  const Recording recording = trace_recording(1, 16, 4, 4000, 40, 1);
  const CompareRequest request{.machine = {.topology = Topology::uniform(1, 4)}, .methods = "slots:1"};
  EXPECT_EQ(swept(recording, request, "step-tokens=100,400").points[1].compared.comparison.tokens_per_step,
            400);
  EXPECT_EQ(swept(recording, request, "top-k=1,3").points[1].compared.top_k, 3);
  EXPECT_EQ(swept(recording, request, "slots=2,5").points[1].compared.comparison.methods[1].method.slots, 5);
  EXPECT_EQ(swept(recording, request, "imbalance-threshold=1.5")
                .points[0]
                .compared.machine.planner.imbalance_threshold_thousandths,
            1500);
  CompareRequest linked = request;
  linked.machine = {.topology = preset_topology("2x2xh100"), .topology_has_links = true};
  EXPECT_EQ(swept(recording, linked, "link=5,20")
                .points[1]
                .compared.machine.topology.description()
                .across.gigabytes_per_s,
            20);
}

TEST(Sweep, OfWhatCannotBeIsRefusedBeforeAnythingRuns) {
  const Recording recording = trace_recording(1, 16, 2, 400, 40, 1);
  const CompareRequest request{.machine = {.topology = preset_topology("2x4xh100")}};
  const auto said = [&](const char* over) {
    return message_of<InvalidArgument>([&] { swept(recording, request, over); });
  };
  constexpr const char* kOverAllowed =
      "; allowed: NAME=VALUE,VALUE,... with one NAME of ranks, step-tokens, top-k, budget, link, slots, "
      "imbalance-threshold, "
      "min-segment";
  EXPECT_EQ(said("size=3"), std::string("over: 'size=3'") + kOverAllowed);
  EXPECT_EQ(said("ranks"), std::string("over: 'ranks'") + kOverAllowed);
  EXPECT_EQ(said("ranks=8,0"), "over: '0'; allowed: a whole number in 1..65536");
  EXPECT_EQ(said("ranks=8,6"), "over: 6 ranks; allowed: a multiple of 4, the ranks of a node");
  EXPECT_EQ(said("link=3"),
            "over: link cannot vary: the topology does not describe links; allowed: a topology with links");
  EXPECT_EQ(said("step-tokens=many"), "over: 'many'; allowed: a whole number, 1 or more");
}

}  // namespace
}  // namespace evenkeel
