#include "evenkeel/placement/evaluate/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;

RoutingProfile of_layers(int experts, std::vector<std::int64_t> loads) {
  const int layers = static_cast<int>(loads.size()) / experts;
  return RoutingProfile(layers, experts, std::move(loads), {});
}

const Topology two_ranks = Topology::uniform(1, 2);

TEST(Judge, CountsStepsOneByOneAndLeavesOutWhatHasNoLoad) {
  // Contiguous homes: experts 0 and 1 on rank 0. Over the whole recording both ranks have the same load.
  std::vector<RoutingProfile> steps = {of_layers(4, {4, 0, 0, 0, 0, 0, 0, 0}),   // max/mean 2 and no load
                                       of_layers(4, {0, 0, 3, 1, 1, 1, 1, 1}),   // max/mean 2 and 1
                                       of_layers(4, {0, 0, 0, 0, 0, 0, 0, 0})};  // no load
  RoutingProfile whole = steps[0];
  whole.add(steps[1]);
  const RecordingJudgement judged = judge(whole, steps, two_ranks, Placement::contiguous(2, 4, 2));
  EXPECT_DOUBLE_EQ(judged.quality.max_over_mean_mean, 1);
  ASSERT_TRUE(judged.steps);
  EXPECT_DOUBLE_EQ(judged.steps->mean, 1.75);
  EXPECT_DOUBLE_EQ(judged.steps->median, 1.75);
  EXPECT_DOUBLE_EQ(judged.steps->p95, 2);
  EXPECT_DOUBLE_EQ(judged.steps->worst, 2);
  EXPECT_FALSE(judge(whole, {}, two_ranks, Placement::contiguous(2, 4, 2)).steps);
}

TEST(Judge, OfTwentyStepsNineteenAreAtMostTheNinetyFifth) {
  std::vector<RoutingProfile> steps;
  for (std::int64_t i = 1; i <= 20; ++i) steps.push_back(of_layers(2, {50 + i, 50 - i}));
  RoutingProfile whole = steps.front();
  for (std::size_t i = 1; i < steps.size(); ++i) whole.add(steps[i]);
  const StepSpread spread = *judge(whole, steps, two_ranks, Placement::contiguous(1, 2, 2)).steps;
  EXPECT_DOUBLE_EQ(spread.median, 1.21);
  EXPECT_DOUBLE_EQ(spread.p95, 1.38);
  EXPECT_DOUBLE_EQ(spread.worst, 1.4);
}

TEST(Move, CountsHomesThatWereNoneBefore) {
  const Placement before({LayerPlacement({{0}, {0}, {1}, {1}}, 2)});
  const Placement after({LayerPlacement({{0, 1}, {1}, {1}, {0}}, 2)});
  const Move move = move_between(before, after, {.expert_bytes = 1e6, .link_gigabytes_per_s = 2});
  EXPECT_EQ(move.experts, 3);
  EXPECT_EQ(move.most_on_rank, 2);
  EXPECT_DOUBLE_EQ(*move.bytes, 3e6);
  EXPECT_DOUBLE_EQ(*move.ms, 1);
  EXPECT_FALSE(move_between(before, after, {}).bytes);
  EXPECT_EQ(move_between(before, before, {}).experts, 0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { move_between(before, Placement::contiguous(2, 4, 2), {}); }),
              HasSubstr("has 2 layers of 4 experts on 2 ranks"));
}

TEST(JudgedPlacement, IsTheNamedHomesOnEachRecordingAndTheMostLevelIsTheFirstOfEquals) {
  const std::vector<Recording> recordings = {{"a", of_layers(4, {9, 1, 1, 1})},
                                             {"b", of_layers(4, {1, 1, 1, 5})}};
  const LayerPlacement level({{0}, {1}, {1}, {1}}, 2);
  const NamedPlacement named{.name = "p.json", .placement = Placement({level}), .argument = "--placement"};
  const std::vector<JudgedPlacement> judged = {judge({}, recordings, two_ranks),
                                               judge(named, recordings, two_ranks),
                                               judge(named, recordings, two_ranks)};
  EXPECT_DOUBLE_EQ(judged[0].on[0].quality.max_over_mean_mean, 10.0 / 6);
  EXPECT_DOUBLE_EQ(judged[1].on[0].quality.max_over_mean_mean, 9.0 / 6);
  EXPECT_EQ(&most_level(std::span(judged).subspan(1)), &judged[1]);
  EXPECT_TRUE(judged[1].blocks.empty());
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                const std::vector<Recording> other = {{"c", of_layers(2, {1, 2})}};
                judge(named, other, two_ranks);
              }),
              HasSubstr("--placement: p.json is for 4 experts"));
}

}  // namespace
}  // namespace evenkeel
