#include "evenkeel/placement/evaluate/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>

#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RoutingProfile loads(std::vector<std::int64_t> of_experts) {
  const int experts = static_cast<int>(of_experts.size());
  return RoutingProfile(1, experts, std::move(of_experts), {});
}

Recording of_steps(std::string name, int count) {
  Recording recording{.name = std::move(name)};
  for (int step = 0; step < count; ++step) recording.steps.push_back(loads({step + 1, 1}));
  recording.profile = loads({1, 1});
  return recording;
}

Recording of_sequences(int sequences) {
  std::vector<std::int64_t> offsets = {0};
  for (int i = 1; i <= sequences; ++i) offsets.push_back(2 * i);
  Recording recording{.name = "t.npz", .profile = loads({1, 1})};
  recording.trace = std::make_shared<MemoryTrace>(
      MemoryTrace::Shape{.num_experts = 2},
      std::vector<std::int32_t>(2 * static_cast<std::size_t>(sequences)), std::vector<float>(), offsets);
  return recording;
}

// The number of profiles in each of the 20 blocks.
std::vector<std::size_t> sizes(const std::vector<Block>& blocks) {
  std::vector<std::size_t> all;
  for (const Block& block : blocks) all.push_back(block.front().profiles.size());
  return all;
}

TEST(Blocks, AreOfWholeStepsInOrderAndAsEqualAsCanBe) {
  const std::vector<Recording> recordings = {of_steps("r", 47)};
  const std::vector<Block> blocks = blocks_of(recordings);
  ASSERT_THAT(blocks, SizeIs(Recording::num_blocks));
  std::vector<std::size_t> expected;
  for (int b = 0; b < Recording::num_blocks; ++b)
    expected.push_back(static_cast<std::size_t>((b + 1) * 47 / 20 - b * 47 / 20));
  EXPECT_EQ(sizes(blocks), expected);
  EXPECT_EQ(blocks[0].front().profiles.data(), recordings[0].steps.data());
  EXPECT_EQ(&blocks[19].front().profiles.back(), &recordings[0].steps.back());
}

TEST(Blocks, OfSeveralRecordingsHaveAPartOfEach) {
  const std::vector<Recording> recordings = {of_steps("a", 20), of_steps("b", 40)};
  const std::vector<Block> blocks = blocks_of(recordings);
  ASSERT_THAT(blocks, SizeIs(Recording::num_blocks));
  for (const Block& block : blocks) {
    ASSERT_THAT(block, SizeIs(2));
    EXPECT_EQ(block[1].recording, 1U);
    EXPECT_THAT(block[1].profiles, SizeIs(2));
  }
}

TEST(Blocks, OfTwentyRecordingsAreTheRecordings) {
  std::vector<Recording> recordings(23, {.name = "r", .profile = loads({3, 1})});
  const std::vector<Block> blocks = blocks_of(recordings);
  ASSERT_THAT(blocks, SizeIs(Recording::num_blocks));
  std::size_t next = 0;
  for (const Block& block : blocks)
    for (const BlockPart& part : block) {
      EXPECT_EQ(part.recording, next);
      EXPECT_EQ(part.profiles.data(), &recordings[next++].profile);
    }
  EXPECT_EQ(next, 23U);
  recordings.resize(19);
  EXPECT_THAT(blocks_of(recordings), IsEmpty());
  EXPECT_DOUBLE_EQ(times_to_have_blocks(recordings), 20.0 / 19);
}

TEST(Blocks, ThereAreNoneOfTooFewUnitsAndItIsSaidWhatIsMissing) {
  const std::vector<Recording> few_steps = {of_steps("a", 40), of_steps("b", 19)};
  EXPECT_THAT(blocks_of(few_steps), IsEmpty());
  EXPECT_EQ(why_no_blocks(few_steps), "b has 19 steps, and 20 are needed");
  const std::vector<Recording> few_sequences = {of_sequences(1)};
  EXPECT_THAT(blocks_of(few_sequences), IsEmpty());
  EXPECT_EQ(why_no_blocks(few_sequences), "t.npz has 1 sequence, and 20 are needed");
  EXPECT_DOUBLE_EQ(times_to_have_blocks(few_sequences), 20);
  const std::vector<Recording> whole = {{.name = "c.json", .profile = loads({1, 1})}};
  EXPECT_THAT(why_no_blocks(whole), HasSubstr("c.json does not say where sequences or steps begin"));
}

TEST(Blocks, AreNotWindowsOfTokens) {
  std::vector<Recording> windows = {of_steps("t.npz", 40)};
  windows[0].steps_are_windows = true;
  EXPECT_THAT(blocks_of(windows), IsEmpty());
  EXPECT_THAT(why_no_blocks(windows), HasSubstr("does not say where sequences or steps begin"));
  windows[0].sequence_blocks.assign(Recording::num_blocks, loads({1, 3}));
  EXPECT_THAT(sizes(blocks_of(windows)), ::testing::Each(1U));
}

TEST(Blocks, AreJudgedByTheMeanOfTheirStepsOverTheMeanOfTheirRecordings) {
  const std::vector<RoutingProfile> one = {loads({3, 1}), loads({0, 0}), loads({1, 1})};  // 1.5, no load, 1
  const std::vector<RoutingProfile> other = {loads({0, 7})};                              // 2
  const Topology two_ranks = Topology::uniform(1, 2);
  const Placement contiguous = Placement::contiguous(1, 2, 2);
  const std::vector<ServedPlacement> homes(2, {contiguous, {contiguous, two_ranks, Dispatch::even}});
  EXPECT_DOUBLE_EQ(level_of({{0, one}}, homes, two_ranks), 1.25);
  EXPECT_DOUBLE_EQ(level_of({{0, one}, {1, other}}, homes, two_ranks), 1.625);
  EXPECT_DOUBLE_EQ(level_of({{0, std::span(one).subspan(1, 1)}}, homes, two_ranks), 1);
}

TEST(StudentQuantile, IsTheTablesOfNineteenDegreesOfFreedom) {
  for (const auto& [chance, value] :
       {std::pair(0.05, 1.7291), {0.025, 2.0930}, {0.005, 2.8609}, {0.001, 3.5794}})
    EXPECT_NEAR(student_quantile(chance), value, 5e-5) << chance;
}

TEST(StudentQuantile, LeavesTheChanceAboveItOfTheDensityAddedUp) {
  constexpr double degrees = Recording::num_blocks - 1;
  const double factor = std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2)) /
                        std::sqrt(degrees * std::numbers::pi);
  for (const double chance : {0.3, 0.01, 0.0025, 0.00005}) {
    double above = 0;
    constexpr double width = 1e-4;
    for (double t = student_quantile(chance) + width / 2; t < 60; t += width)
      above += width * factor * std::pow(1 + t * t / degrees, -(degrees + 1) / 2);
    EXPECT_NEAR(above / chance, 1, 1e-4) << chance;
  }
}

TEST(Gain, IsThePairedMeanWithItsStandardError) {
  std::vector<double> before, after;
  for (int i = 0; i < Recording::num_blocks; ++i) {
    before.push_back(2 + i);
    after.push_back(1.5 + i + (i % 2 == 0 ? 0.1 : -0.1));  // gains of 0.4 and 0.6
  }
  const Gain gain = gain_of(before, after, 0.005);
  EXPECT_NEAR(gain.before, 11.5, 1e-12);
  EXPECT_NEAR(gain.after, 11, 1e-12);
  EXPECT_NEAR(gain.mean, 0.5, 1e-12);
  EXPECT_NEAR(gain.standard_error, 0.1 * std::sqrt(20.0 / 19 / 20), 1e-12);
  EXPECT_NEAR(gain.high() - gain.low(), 2 * 2.8609 * gain.standard_error, 1e-4);
}

}  // namespace
}  // namespace evenkeel
