#include "evenkeel/placement/evaluate/hold_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/evaluate/provenance.h"
#include "tests/placement/evaluate/verdict_runs.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Topology eight_ranks = Topology::uniform(1, 8);
const verdict_runs::Truth skewed{.experts = 32, .layers = 2, .max_over_mean = 1.5, .concentration = 1};

double level(const RoutingProfile& profile, const Placement& placement) {
  const PlacementQuality quality = placement_quality(profile, eight_ranks, placement);
  return quality.max_over_mean_mean;
}

TEST(HoldOut, JudgesEachFoldByAPlacementOfTheOthers) {
  const Recording recording = draw(skewed, 20'000, 5);
  PlaceOptions options{.redundant_experts = 8};
  const HeldOut held_out = *hold_out({&recording, 1}, PlacedFor::recordings, eight_ranks, options, 0);
  ASSERT_THAT(held_out.after, SizeIs(Recording::num_blocks));
  EXPECT_THAT(held_out.notes, IsEmpty());
  const Placement contiguous = Placement::contiguous(2, 32, 8);
  for (std::size_t fold = 0; fold < 10; ++fold) {
    RoutingProfile others(2, 32, false);
    for (std::size_t block = 0; block < 20; ++block)
      if (block / 2 != fold) others.add(recording.sequence_blocks[block]);
    const Placement placed = place(others, eight_ranks, options).placement;
    for (const std::size_t block : {2 * fold, 2 * fold + 1}) {
      EXPECT_DOUBLE_EQ(held_out.after[block], level(recording.sequence_blocks[block], placed));
      EXPECT_DOUBLE_EQ(held_out.before[block], level(recording.sequence_blocks[block], contiguous));
    }
  }
}

TEST(HoldOut, OfSeveralRecordingsLeavesAPartOfEachOut) {
  const std::vector<Recording> recordings = {draw(skewed, 20'000, 6), draw(skewed, 4'000, 7)};
  const HeldOut held_out = *hold_out(recordings, PlacedFor::recordings, eight_ranks, {}, 0);
  std::vector<RoutingProfile> others(2, RoutingProfile(2, 32, false));
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t block = 2; block < 20; ++block) others[r].add(recordings[r].sequence_blocks[block]);
  const Placement placed = place(others, eight_ranks).placement;
  for (const std::size_t block : {0U, 1U})
    EXPECT_DOUBLE_EQ(held_out.after[block], (level(recordings[0].sequence_blocks[block], placed) +
                                             level(recordings[1].sequence_blocks[block], placed)) /
                                                2);
}

TEST(HoldOut, OfStepsThatAreAllToBeLevelPlacesForTheOtherSteps) {
  const Recording recording = draw_steps(skewed, 400, 8);  // 40 steps of ten tokens
  ASSERT_THAT(recording.steps, SizeIs(40));
  const HeldOut held_out = *hold_out({&recording, 1}, PlacedFor::steps, eight_ranks, {}, 0);
  const std::span<const RoutingProfile> steps(recording.steps);
  const Placement placed = place(std::vector(steps.begin(), steps.end() - 4), eight_ranks).placement;
  EXPECT_DOUBLE_EQ(held_out.after[19], (level(steps[38], placed) + level(steps[39], placed)) / 2);
  const HeldOut of_sum = *hold_out({&recording, 1}, PlacedFor::recordings, eight_ranks, {}, 0);
  EXPECT_NE(of_sum.after, held_out.after);
}

TEST(HoldOut, StartsEachFoldFromThePlacementToMoveFrom) {
  const Recording recording = draw(skewed, 20'000, 9);
  const Placement from = place(draw(skewed, 20'000, 10).profile, eight_ranks).placement;
  const HeldOut held_out =
      *hold_out({&recording, 1}, PlacedFor::recordings, eight_ranks, {.from = from, .max_moves = 0}, 0);
  EXPECT_EQ(held_out.before, held_out.after);
  EXPECT_DOUBLE_EQ(held_out.before[3], level(recording.sequence_blocks[3], from));
}

TEST(HoldOut, IsNothingWithoutBlocksOfAJointPlacementAndOnceAskedToStop) {
  Recording recording = draw(skewed, 2'000, 11);
  const std::span<const Recording> one(&recording, 1);
  EXPECT_FALSE(
      hold_out(one, PlacedFor::recordings, eight_ranks, {.objective = PlaceOptions::Objective::joint}, 0));
  EXPECT_FALSE(hold_out(one, PlacedFor::steps, eight_ranks, {}, 0));  // the recording has no steps
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(hold_out(one, PlacedFor::recordings, eight_ranks, {.limits = {.stop = stop.get_token()}}, 0));
  recording.sequence_blocks.clear();
  EXPECT_FALSE(hold_out(one, PlacedFor::recordings, eight_ranks, {}, 0));
}

TEST(HoldOut, PlacesFastAndSaysSo) {
  const Recording recording = draw(skewed, 2'000, 12);
  const PlaceOptions exact{.solver = PlaceOptions::Solver::exact};
  const HeldOut held_out = *hold_out({&recording, 1}, PlacedFor::recordings, eight_ranks, exact, 0);
  ASSERT_THAT(held_out.notes, SizeIs(1));
  EXPECT_THAT(held_out.notes[0], HasSubstr("by the fast solver"));
  EXPECT_EQ(held_out.after, hold_out({&recording, 1}, PlacedFor::recordings, eight_ranks, {}, 0)->after);
}

TEST(Provenance, KeepsTheDigestsOfLoadsAndWhatWasHeldOut) {
  const std::vector<Recording> recordings = {draw(skewed, 2'000, 13), draw(skewed, 2'000, 14)};
  EXPECT_EQ(digests_in(provenance_of(recordings, {})), digests_of(recordings));
  EXPECT_NE(digest_of(recordings[0].profile), digest_of(recordings[1].profile));
  EXPECT_EQ(digest_of(RoutingProfile(1, 2, {3, 4}, {})), digest_of(RoutingProfile(1, 2, {3, 4}, {})));
  EXPECT_NE(digest_of(RoutingProfile(1, 2, {3, 4}, {})), digest_of(RoutingProfile(2, 1, {3, 4}, {})));
  EXPECT_THAT(digests_in({{"program", "another"}}), IsEmpty());
  const auto said = provenance_of(recordings, HeldOut{.before = {1.5, 1.25}, .after = {1.0, 1.125}});
  EXPECT_EQ(said.at("held_out_max_over_mean_before"), "1.375000");
  EXPECT_EQ(said.at("held_out_max_over_mean"), "1.062500");
}

TEST(JudgePlaced, SaysOfItsOwnRecordingWhatWasHeldOutAndOfOthersWhatTheySay) {
  const Recording own = draw(skewed, 20'000, 15), other = draw(skewed, 20'000, 16);
  const auto held_out = hold_out({&own, 1}, PlacedFor::recordings, eight_ranks, {}, 0);
  const NamedPlacement after{.name = "p", .placement = place(own.profile, eight_ranks).placement};
  const JudgedPlacing judged =
      judge_placed({}, after, {{&own, 1}, {&other, 1}, held_out}, eight_ranks, StepModel{}, {});
  EXPECT_EQ(judged.verdict->gain->mean, gain_of(held_out->before, held_out->after, 0.005).mean);
  EXPECT_EQ(judged.verdict->measured_on, JudgedData::made_from);
  EXPECT_EQ(judged.judged_verdict->measured_on, JudgedData::not_made_from);
  ASSERT_THAT(judged.judged, SizeIs(1));
  EXPECT_EQ(judged.judged[0].quality.after.max_over_mean_mean, level(other.profile, *after.placement));
  // A recording that the placement was made from does not count as other traffic.
  const JudgedPlacing twice =
      judge_placed({}, after, {{&own, 1}, {&own, 1}, held_out}, eight_ranks, StepModel{}, {});
  EXPECT_EQ(twice.judged_verdict->measured_on, JudgedData::made_from);
}

TEST(OneRecording, IsSaidToBeOne) {
  EXPECT_THAT(note_of_one_recording(1, 0), HasSubstr("made from one recording"));
  EXPECT_EQ(note_of_one_recording(2, 0), "");
  EXPECT_EQ(note_of_one_recording(1, 1), "");
}

}  // namespace
}  // namespace evenkeel
