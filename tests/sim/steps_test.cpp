// How recordings become steps of ranks: nothing is lost, and tokens are dealt evenly.
#include "evenkeel/sim/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"
#include "tests/sim/recordings.h"

namespace evenkeel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::load_recording;
using testing::trace_recording;

TEST(GroupShape, IsTheLargestThatDividesTheRanks) {
  const auto shape = [](int ranks, int experts) {
    const GroupShape made = group_shape(ranks, experts);
    return std::pair(made.ranks, made.groups);
  };
  EXPECT_EQ(shape(8, 32), std::pair(8, 1));
  EXPECT_EQ(shape(64, 32), std::pair(32, 2));
  EXPECT_EQ(shape(4096, 256), std::pair(256, 16));
  EXPECT_EQ(shape(12, 8), std::pair(6, 2));
  EXPECT_EQ(shape(7, 4), std::pair(1, 7));
}

// The loads of a step, summed over all groups' ranks and checked against its tokens.
std::vector<std::int64_t> loads_of(StepSource& steps, GroupShape shape, int step, int layer) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(steps.num_experts()));
  LayerTokens tokens;
  steps.open(step);
  for (int group = 0; group < shape.groups; ++group) {
    steps.read(layer, group, tokens);
    EXPECT_EQ(tokens.num_ranks(), shape.ranks);
    EXPECT_LE(tokens.most_tokens(), steps.most_tokens());
    for (ExpertId expert : indices<ExpertId>(steps.num_experts()))
      loads[expert.offset()] += tokens.counts.load(expert);
    if (!tokens.has_tokens()) continue;
    for (RankId rank : indices<RankId>(shape.ranks)) {
      std::vector<std::int64_t> row(loads.size());
      const auto k = static_cast<std::size_t>(tokens.top_k);
      for (auto at = static_cast<std::size_t>(tokens.first_token[rank.offset()]) * k;
           at < static_cast<std::size_t>(tokens.first_token[rank.offset() + 1]) * k; ++at)
        if (tokens.experts[at] >= 0) ++row[static_cast<std::size_t>(tokens.experts[at])];
      const auto counted = tokens.counts.row(rank);
      EXPECT_EQ(std::vector(counted.begin(), counted.end()), row);
    }
  }
  return loads;
}

TEST(Steps, OfATraceHaveAllItsAssignmentsWhateverTheGroups) {
  for (const int sequences : {0, 3, 40, 90}) {
    const Recording recording = trace_recording(3, 16, 4, 900, sequences, 7);
    for (const GroupShape shape : {GroupShape{1, 1}, GroupShape{8, 1}, GroupShape{4, 3}, GroupShape{16, 2}}) {
      const auto steps = steps_of(std::span(&recording, 1), shape);
      EXPECT_GE(steps->num_steps(), 40);
      const RoutingProfile whole = steps->profile(0, steps->num_steps(), true);
      for (int layer = 0; layer < 3; ++layer) {
        std::vector<std::int64_t> sum(16);
        for (int step = 0; step < steps->num_steps(); ++step) {
          const auto loads = loads_of(*steps, shape, step, layer);
          for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += loads[e];
        }
        const auto expected = whole.loads(LayerId(layer));
        EXPECT_EQ(sum, std::vector(expected.begin(), expected.end()));
      }
    }
  }
}

TEST(Steps, OfATraceAreWindowsWhereTokensAreSaid) {
  const Recording recording = trace_recording(1, 8, 2, 1000, 10, 1);
  const auto steps = steps_of(std::span(&recording, 1), {4, 1}, {.tokens = 300});
  EXPECT_EQ(steps->num_steps(), 3);  // the last 100 tokens do not fill a step
  EXPECT_EQ(steps->assignments_per_step(), 600);
  EXPECT_EQ(steps->most_tokens(), 75);
  EXPECT_EQ(steps->independent_parts(0, 3), 9);
  EXPECT_EQ(steps->independent_parts(1, 2), 3);
  const auto fewer = steps_of(std::span(&recording, 1), {4, 1}, {.tokens = 300, .top_k = 1});
  EXPECT_EQ(fewer->assignments_per_step(), 300);
  const RoutingProfile placing = fewer->profile(1, 2, false);  // with top-1, as replayed
  const auto placed = placing.loads(LayerId(0));
  EXPECT_EQ(std::vector(placed.begin(), placed.end()), loads_of(*fewer, {4, 1}, 1, 0));
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              steps_of(std::span(&recording, 1), {4, 1}, {.tokens = 1001});
            }),
            "step_tokens: 1001, but trace has 1000 tokens; allowed: 1..1000");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              steps_of(std::span(&recording, 1), {4, 1}, {.top_k = 3});
            }),
            "top_k: 3, but trace has 2 experts a token; allowed: 1..2");
}

TEST(Steps, OfLoadsAreTheFilesOwnAndComeFromAllRanksAlike) {
  const Recording recording = load_recording({{5, 0, 9}, {8, 1, 1}});
  for (const GroupShape shape : {GroupShape{1, 1}, GroupShape{3, 1}, GroupShape{2, 2}, GroupShape{1, 7}}) {
    const auto steps = steps_of(std::span(&recording, 1), shape);
    EXPECT_EQ(steps->num_steps(), 2);
    EXPECT_EQ(steps->independent_parts(0, 2), 2);
    EXPECT_THAT(loads_of(*steps, shape, 0, 0), ElementsAre(5, 0, 9));
    EXPECT_THAT(loads_of(*steps, shape, 1, 0), ElementsAre(8, 1, 1));
    LayerTokens tokens;
    steps->open(0);
    for (int group = 0; group < shape.groups; ++group) {
      steps->read(0, group, tokens);
      for (RankId rank : indices<RankId>(shape.ranks)) {
        std::int64_t sum = 0;
        for (const std::int64_t count : tokens.counts.row(rank)) sum += count;
        EXPECT_NEAR(static_cast<double>(sum), 14.0 / (shape.ranks * shape.groups), 1);
      }
    }
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              steps_of(std::span(&recording, 1), {1, 1}, {.tokens = 3});
            }),
            "step_tokens: loads has loads, already divided into steps; allowed: a trace, or to leave it out");
}

TEST(Steps, OfSeveralRecordingsFollowEachOther) {
  const std::vector<Recording> recordings = {load_recording({{5, 0}, {1, 1}}), load_recording({{0, 7}})};
  const auto steps = steps_of(recordings, {2, 1});
  EXPECT_EQ(steps->num_steps(), 3);
  EXPECT_EQ(steps->independent_parts(1, 3), 2);
  EXPECT_THAT(loads_of(*steps, {2, 1}, 1, 0), ElementsAre(1, 1));
  EXPECT_THAT(loads_of(*steps, {2, 1}, 2, 0), ElementsAre(0, 7));
  EXPECT_THAT(steps->profile(1, 3, false).loads(LayerId(0)), ElementsAre(1, 8));
}

TEST(Steps, OfUnlikeModelsAreRefused) {
  const Recording trace = trace_recording(1, 8, 2, 40, 4, 1);
  for (const Recording& other :
       {trace_recording(2, 8, 2, 40, 4, 1), trace_recording(1, 16, 2, 40, 4, 1),
        trace_recording(1, 8, 1, 40, 4, 1), load_recording({{1, 2, 3, 4, 5, 6, 7, 8}})}) {
    const std::vector<Recording> both = {trace, other};
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  steps_of(both, {4, 1});
                }),
                ::testing::StartsWith("recordings: "));
  }
}

TEST(Steps, OfNothingAreRefused) {
  const Recording recording = load_recording({{0, 0}});
  EXPECT_EQ(message_of<ParseError>([&] {
              steps_of(std::span(&recording, 1), {1, 1});
            }),
            "loads: has no assignments");
}

}  // namespace
}  // namespace evenkeel
