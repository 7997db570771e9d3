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
  // Contiguous: experts 0 and 1 on rank 0. Over the whole recording both ranks bear as much.
  std::vector<RoutingProfile> steps = {of_layers(4, {4, 0, 0, 0, 0, 0, 0, 0}),   // 2; its layer 1 has nothing
                                       of_layers(4, {0, 0, 3, 1, 1, 1, 1, 1}),   // 2 and 1
                                       of_layers(4, {0, 0, 0, 0, 0, 0, 0, 0})};  // nothing
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

class Verdicts : public ::testing::Test {
 protected:
  RecordingJudgement with(double ratio) const {
    RecordingJudgement judged;
    judged.quality.max_over_mean_mean = ratio;
    return judged;
  }
  Verdict of(double before, double after, std::optional<double> horizon) const {
    const std::vector<RecordingJudgement> a = {with(before)};
    const std::vector<RecordingJudgement> b = {with(after)};
    return verdict_of(a, b, move_, model_, 10, 4, horizon);
  }

  // A step of 10 layers, 4,000 assignments on 4 ranks, 0.1 us each: 1 ms at max/mean 1.
  StepModel model_{.assignment_us = 0.1, .assignments_per_step = 4000.0};
  Move move_{.experts = 8, .most_on_rank = 2, .bytes = 8e6, .ms = 50.0};
};

TEST_F(Verdicts, TurnAtTheBreakEvenOfArithmetic) {
  const Verdict open = of(1.5, 1.25, std::nullopt);
  EXPECT_EQ(open.answer, Verdict::Answer::depends);
  EXPECT_DOUBLE_EQ(*open.step_ms_before, 1.5);
  EXPECT_DOUBLE_EQ(*open.step_ms_after, 1.25);
  EXPECT_DOUBLE_EQ(*open.break_even_steps, 200);  // 50 ms / 0.25 ms
  EXPECT_THAT(open.sentence, HasSubstr("pays after 200 steps"));
  EXPECT_EQ(of(1.5, 1.25, 201).answer, Verdict::Answer::pays);
  EXPECT_EQ(of(1.5, 1.25, 200).answer, Verdict::Answer::does_not_pay);
  EXPECT_EQ(of(1.5, 1.25, 199).answer, Verdict::Answer::does_not_pay);
}

TEST_F(Verdicts, SayWhatIsNotKnown) {
  model_ = {};
  EXPECT_THAT(of(1.5, 1.2, 100).sentence, HasSubstr("it depends on what a step takes"));
  move_.ms.reset();
  EXPECT_THAT(of(1.5, 1.2, std::nullopt).sentence,
              HasSubstr("what a step takes, what the move takes and how many steps it will serve"));
  EXPECT_EQ(of(1.2, 1.2, 100).answer, Verdict::Answer::does_not_pay);
  move_ = {};
  EXPECT_EQ(of(1.5, 1.2, std::nullopt).answer, Verdict::Answer::pays);  // nothing moves
}

TEST_F(Verdicts, AreOfTheMeanOfRecordingsAndCountThoseThatGain) {
  const std::vector<RecordingJudgement> before = {with(1.4), with(1.2)};
  const std::vector<RecordingJudgement> after = {with(1.0), with(1.3)};
  const Verdict verdict = verdict_of(before, after, move_, model_, 10, 4, std::nullopt);
  EXPECT_DOUBLE_EQ(verdict.max_over_mean_before, 1.3);
  EXPECT_DOUBLE_EQ(verdict.max_over_mean_after, 1.15);
  EXPECT_EQ(verdict.better_on, 1);
  EXPECT_THROW(verdict_of({}, {}, move_, model_, 10, 4, std::nullopt), InvalidArgument);
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
  const Verdict verdict = verdict_of(recordings, judged[0], judged[1], {}, 2, std::nullopt);
  EXPECT_EQ(verdict.placement, "p.json");
  EXPECT_EQ(verdict.against, "contiguous");
  EXPECT_EQ(verdict.move.experts, 1);
  EXPECT_FALSE(verdict.of_steps);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                const std::vector<Recording> other = {{"c", of_layers(2, {1, 2})}};
                judge(named, other, two_ranks);
              }),
              HasSubstr("--placement: p.json is for 4 experts"));
}

}  // namespace
}  // namespace evenkeel
