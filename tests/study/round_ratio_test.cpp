// The confidence interval of a median over rounds, checked with the binomial distribution.
#include "evenkeel/study/round_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace evenkeel {
namespace {

// The probability that at most `most` of n coin tosses are heads.
double at_most(int most, int n) {
  double sum = 0;
  for (int heads = 0; heads <= most; ++heads)
    sum +=
        std::exp(std::lgamma(n + 1) - std::lgamma(heads + 1) - std::lgamma(n - heads + 1) - n * std::log(2));
  return sum;
}

// With values 0, 1, 2, ... each bound tells how many rounds lie outside it.
RoundRatio of_places(int rounds) {
  std::vector<double> places(static_cast<std::size_t>(rounds));
  std::iota(places.begin(), places.end(), 0.0);
  return round_ratio(places);
}

// The true median is below the low bound if at most `outside` rounds are below the median.
TEST(RoundRatio, HasTheMedianOfAllRoundsWithin95PercentFromSixRoundsOn) {
  for (int rounds = 6; rounds <= 1000; ++rounds) {
    const RoundRatio ratio = of_places(rounds);
    const int outside = static_cast<int>(ratio.low);
    ASSERT_EQ(ratio.high, rounds - 1 - outside);
    ASSERT_LE(2 * at_most(outside, rounds), 0.05) << rounds;
    ASSERT_GT(2 * at_most(outside + 2, rounds), 0.05) << rounds << ": narrower bounds would do";
  }
}

TEST(RoundRatio, OfFewRoundsIsBetweenTheLeastAndTheGreatest) {
  for (int rounds = 1; rounds < 6; ++rounds) {
    EXPECT_EQ(of_places(rounds).low, 0) << rounds;
    EXPECT_EQ(of_places(rounds).high, rounds - 1) << rounds;
  }
  EXPECT_EQ(round_ratio({}).median, 1);
}

TEST(RoundRatio, SaysTheMedianAndHowFarRoundsAreApart) {
  const RoundRatio ratio = of_places(11);
  EXPECT_EQ(ratio.median, 5);
  EXPECT_EQ(ratio.spread, 4);
}

}  // namespace
}  // namespace evenkeel
