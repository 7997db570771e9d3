#include "evenkeel/placement/evaluate/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/evaluate/provenance.h"
#include "tests/placement/evaluate/verdict_runs.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Answer = Verdict::Answer;

RecordingJudgement with(double ratio) {
  RecordingJudgement judged;
  judged.quality.max_over_mean_mean = ratio;
  return judged;
}

class Verdicts : public ::testing::Test {
 protected:
  Verdict of(double before, double after, std::optional<double> horizon) const {
    const std::vector<RecordingJudgement> a = {with(before)};
    const std::vector<RecordingJudgement> b = {with(after)};
    return verdict_of(a, b, evidence_, move_, model_, 10, 4, horizon);
  }
  // The verdict on a gain of `mean` with a confidence interval of +- `half_width`.
  Verdict of_gain(double mean, double half_width, std::optional<double> horizon) {
    evidence_.gain = Gain{.mean = mean, .standard_error = half_width / 2.861, .half_width = half_width};
    return of(1.5, 1.5 - mean, horizon);
  }

  // A step with 10 layers and 4,000 assignments on 4 ranks, at 0.1 us each, takes 1 ms at max/mean 1.
  StepModel model_{.assignment_us = 0.1, .assignments_per_step = 4000.0};
  Move move_{.experts = 8, .most_on_rank = 2, .bytes = 8e6, .ms = 50.0};
  Evidence evidence_{.why_no_gain = "r has 3 steps, and 20 are needed",
                     .measured_on = JudgedData::not_made_from,
                     .tokens = 1000,
                     .times_for_blocks = 20.0 / 3};
};

TEST_F(Verdicts, TurnWhereABoundOfTheGainOverTheHorizonPassesTheMove) {
  // Each step saves 0.25 ms (0.2 to 0.3), so a move of 50 ms pays surely after 250 steps and never before
  // 166.7.
  EXPECT_EQ(of_gain(0.25, 0.05, 251).answer, Answer::pays);
  EXPECT_EQ(of_gain(0.25, 0.05, 249).answer, Answer::not_enough_data);
  EXPECT_EQ(of_gain(0.25, 0.05, 167).answer, Answer::not_enough_data);
  EXPECT_EQ(of_gain(0.25, 0.05, 166).answer, Answer::does_not_pay);
  const Verdict verdict = of_gain(0.25, 0.05, 1000);
  EXPECT_DOUBLE_EQ(*verdict.break_even_steps, 200);
  EXPECT_EQ(
      verdict.sentence,
      "it pays: 250.00 us a step are saved (200.00 us to 300.00 us), the move takes 50.00 ms, so it pays "
      "after 200 steps, and the horizon is 1000 steps");
  EXPECT_FALSE(verdict.tokens_needed);
}

TEST_F(Verdicts, ANoisyGainIsNotEnoughDataAndSaysHowManyTokensWouldDo) {
  const Verdict verdict = of_gain(0.25, 0.5, 1000);
  EXPECT_EQ(verdict.answer, Answer::not_enough_data);
  EXPECT_EQ(name_of(verdict.answer), std::string("not_enough_data"));
  // Needs ((2.861 + 1.65) x 0.1748 / (0.25 - 0.05))^2 = 15.53 times the tokens. 0.1748 is the standard error,
  // 0.25 the gain and 0.05 the cost of the move per step.
  EXPECT_EQ(verdict.tokens_needed, 16'000);
  EXPECT_THAT(verdict.sentence,
              HasSubstr("the move needs 50.00 us of each step over 1000 steps; about 16,000 "
                        "tokens would be enough, and there are 1,000"));
}

TEST_F(Verdicts, AGainThatIsAllChanceAsksForNoMoreThanAStandardErrorShows) {
  const double most = (2.861 + 1.65) * (2.861 + 1.65);
  const Verdict verdict = of_gain(0.05, 0.5, 1000);  // a gain that just pays for the move
  EXPECT_EQ(verdict.answer, Answer::not_enough_data);
  EXPECT_EQ(verdict.tokens_needed, std::ceil(most) * 1000);
}

TEST_F(Verdicts, WithoutBlocksThereIsNotEnoughDataHoweverLargeTheGainSeems) {
  for (const double after : {1.0, 1.49, 1.6}) {
    const Verdict verdict = of(1.5, after, 1e9);
    EXPECT_EQ(verdict.answer, Answer::not_enough_data) << after;
    EXPECT_EQ(verdict.tokens_needed, 6700);
    EXPECT_EQ(
        verdict.sentence,
        "not enough data: r has 3 steps, and 20 are needed, so the effect of chance is not known; about "
        "6,700 tokens would be enough, and there are 1,000");
  }
}

TEST_F(Verdicts, NeverPayOnWhatThePlacementWasMadeFromUnlessItWasHeldOut) {
  evidence_.measured_on = JudgedData::made_from;
  const Verdict own = of_gain(0.25, 0.05, 1000);
  EXPECT_EQ(own.answer, Answer::not_enough_data);
  EXPECT_THAT(own.sentence,
              HasSubstr("made from this data, so it is optimistic that 250.00 us a step are saved"));
  EXPECT_THAT(own.sentence, HasSubstr("tokens of other traffic would be enough"));
  evidence_.held_out = true;
  const Verdict held_out = of_gain(0.25, 0.05, 1000);
  EXPECT_EQ(held_out.answer, Answer::pays);
  EXPECT_THAT(held_out.sentence, HasSubstr("it pays: held out, 250.00 us a step are saved"));
  EXPECT_EQ(name_of(*held_out.measured_on), std::string("the data it was made from"));
}

// The case of vLLM's pull request 50647: a window's placement is slightly better on that window, but moves
// many experts for only a few steps.
TEST_F(Verdicts, AGainOnItsOwnWindowThatDoesNotCoverTheMoveDoesNotPay) {
  evidence_.measured_on = JudgedData::made_from;
  const Verdict verdict = of(1.20, 1.18, 1000);  // saves 20 ms; the move takes 50 ms
  EXPECT_EQ(verdict.answer, Answer::does_not_pay);
  EXPECT_EQ(
      verdict.sentence,
      "it does not pay: 20.00 us a step are saved, the move takes 50.00 ms, so it pays after 2500 steps, "
      "and the horizon is 1000 steps, and that is optimistic: the placement was made from this data");
  EXPECT_EQ(of(1.20, 1.18, 3000).answer, Answer::not_enough_data);
}

TEST_F(Verdicts, WhereThePlacementDoesNotSayWhatItWasMadeFromPaysIsConditional) {
  evidence_.measured_on.reset();
  const Verdict verdict = of_gain(0.25, 0.05, 1000);
  EXPECT_EQ(verdict.answer, Answer::pays);
  EXPECT_THAT(verdict.sentence, HasSubstr(", if the placement was not made from this data"));
}

TEST_F(Verdicts, SayWhatIsNotKnownOnceTheGainIs) {
  const Verdict open = of_gain(0.25, 0.05, std::nullopt);
  EXPECT_EQ(open.answer, Answer::depends);
  EXPECT_EQ(open.sentence, "it depends on how many steps it will serve: it pays after 200 steps");
  model_ = {};
  EXPECT_EQ(of_gain(0.25, 0.05, 100).sentence,
            "it depends on what a step takes: max/mean falls by 0.250 (0.200 to 0.300)");
  move_.ms.reset();
  EXPECT_THAT(of_gain(0.25, 0.05, std::nullopt).sentence,
              HasSubstr("what a step takes, what the move takes and how many steps it will serve"));
  EXPECT_EQ(of_gain(0.05, 0.06, std::nullopt).answer, Answer::not_enough_data);
  const Verdict worse = of_gain(-0.06, 0.05, std::nullopt);
  EXPECT_EQ(worse.answer, Answer::does_not_pay);
  EXPECT_EQ(worse.sentence, "it does not pay: max/mean rises by 0.060 (0.010 to 0.110)");
}

TEST_F(Verdicts, WhereNothingMovesTheGainMustStillBeSure) {
  move_ = {};
  EXPECT_EQ(of_gain(0.05, 0.06, std::nullopt).answer, Answer::not_enough_data);
  const Verdict sure = of_gain(0.05, 0.04, std::nullopt);
  EXPECT_EQ(sure.answer, Answer::pays);
  EXPECT_THAT(sure.sentence, HasSubstr("it pays: nothing has to move, and 50.00 us a step are saved"));
  EXPECT_EQ(of_gain(0, 0, std::nullopt).answer, Answer::does_not_pay);
}

TEST_F(Verdicts, AreOfTheMeanOfRecordingsAndCountThoseThatGain) {
  const std::vector<RecordingJudgement> before = {with(1.4), with(1.2)};
  const std::vector<RecordingJudgement> after = {with(1.0), with(1.3)};
  const Verdict verdict = verdict_of(before, after, evidence_, move_, model_, 10, 4, std::nullopt);
  EXPECT_DOUBLE_EQ(verdict.max_over_mean_before, 1.3);
  EXPECT_DOUBLE_EQ(verdict.max_over_mean_after, 1.15);
  EXPECT_EQ(verdict.better_on, 1);
  EXPECT_THROW(verdict_of({}, {}, evidence_, move_, model_, 10, 4, std::nullopt), InvalidArgument);
}

// Synthetic routing drawn from a known distribution.
class DrawnRouting : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSeed = 20260;
  const verdict_runs::Truth uniform_{.experts = 32, .concentration = 1};
  const Topology topology_ = Topology::uniform(1, 8);

  NamedPlacement placed_on(const Recording& recording) const {
    return {.name = "p",
            .placement = place(recording.profile, topology_).placement,
            .made_from = {digest_of(recording.profile)}};
  }
  Verdict on(const Recording& recording, std::vector<NamedPlacement> placements, StepModel model = {}) const {
    return evaluate({recording}, std::move(placements), {}, topology_, model, 1e9).verdict;
  }
};

TEST_F(DrawnRouting, OfNoGainSeldomPays) {
  int paid = 0, runs = 0;
  for (const std::int64_t tokens : {100, 1'000, 10'000, 100'000})
    for (std::uint64_t run = 0; run < 15; ++run, runs += 3) {
      const Recording one = draw(uniform_, tokens, kSeed + 2 * run),
                      other = draw(uniform_, tokens, kSeed + 2 * run + 1);
      const Recording steps = draw_steps(uniform_, tokens, kSeed + run);
      paid += verdict_on_own(uniform_, one).answer == Answer::pays;
      paid += verdict_on_fresh(uniform_, one, other).answer == Answer::pays;
      paid += steps.steps.size() >= Recording::num_blocks &&
              verdict_on_own(uniform_, steps).answer == Answer::pays;
    }
  EXPECT_LE(paid, runs / 50) << "of " << runs << " from seed " << kSeed;
}

TEST_F(DrawnRouting, OfATenthToGainPays) {
  for (verdict_runs::Truth truth : {verdict_runs::Truth{.ranks = 32, .experts = 128}, {.layers = 4}}) {
    truth.max_over_mean = 1 / 0.9;
    int paid = 0;
    for (std::uint64_t run = 0; run < 10; ++run) {
      const Recording one = draw(truth, 100'000, kSeed + 2 * run),
                      other = draw(truth, 100'000, kSeed + 2 * run + 1);
      paid += verdict_on_own(truth, one).answer == Answer::pays;
      paid += verdict_on_fresh(truth, one, other).answer == Answer::pays;
    }
    EXPECT_GE(paid, 19) << truth.ranks << " ranks from seed " << kSeed;
  }
}

TEST_F(DrawnRouting, IsKnownAgainAsTheDataThatAPlacementWasMadeFrom) {
  const Recording one = draw(uniform_, 1000, 1), other = draw(uniform_, 1000, 2);
  EXPECT_EQ(on(one, {placed_on(one)}).measured_on, JudgedData::made_from);
  EXPECT_EQ(on(other, {placed_on(one)}).measured_on, JudgedData::not_made_from);
  NamedPlacement silent = placed_on(one);
  silent.made_from.clear();
  EXPECT_EQ(on(one, {silent}).measured_on, std::nullopt);
  const Verdict both = evaluate({other, one}, {placed_on(one)}, {}, topology_, {}, {}).verdict;
  EXPECT_EQ(both.measured_on, JudgedData::made_from);
}

TEST_F(DrawnRouting, BoundsAreWiderForTheBestOfSeveralPlacements) {
  const Recording one = draw(uniform_, 1000, 1), other = draw(uniform_, 1000, 2);
  const Gain alone = *on(other, {placed_on(one)}).gain;
  const Gain picked = *on(other, {placed_on(one), placed_on(one), placed_on(one)}).gain;
  EXPECT_DOUBLE_EQ(picked.mean, alone.mean);
  EXPECT_DOUBLE_EQ(picked.half_width / alone.half_width,
                   student_quantile(0.005 / 3) / student_quantile(0.005));
}

TEST_F(DrawnRouting, CountsTokensByTheModelsExpertsPerToken) {
  const Recording one = draw(uniform_, 100, 1);
  const std::string of_assignments = on(one, {placed_on(one)}).sentence;
  EXPECT_THAT(of_assignments, HasSubstr("assignments of a layer"));
  const Verdict of_tokens = on(one, {placed_on(one)}, {.top_k = 8});
  EXPECT_THAT(of_tokens.sentence, Not(HasSubstr("assignments")));
  EXPECT_GE(*on(one, {placed_on(one)}, {.top_k = 1}).tokens_needed, 4 * *of_tokens.tokens_needed);
}

}  // namespace
}  // namespace evenkeel
