// Loads that are not whole numbers.
#include "evenkeel/io/internal/fractional_loads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {
namespace {

std::vector<std::string> notes_of(const ScaledLoads& scaled) {
  std::vector<std::string> notes;
  scaled.note_in(notes);
  return notes;
}

TEST(FractionalLoads, LeavesWholeNumbersAsTheyAre) {
  const std::vector<double> values{0, 1, 7, 0x1p53, 0x1p60};
  const ScaledLoads scaled = scaled_loads(values, "f", "counts");
  EXPECT_EQ(scaled.exponent, 0);
  EXPECT_TRUE(notes_of(scaled).empty());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(scaled.loads[i], static_cast<std::int64_t>(values[i]));
}

TEST(FractionalLoads, StayExactWhereAPowerOfTwoMakesThemWhole) {
  const ScaledLoads scaled = scaled_loads(std::vector<double>{0.5, 3, 0.125, 0}, "f", "counts");
  EXPECT_EQ(scaled.exponent, 3);
  EXPECT_EQ(notes_of(scaled), std::vector<std::string>{"loads that are not whole numbers are scaled by 2^3"});
  EXPECT_EQ(scaled.loads, (std::vector<std::int64_t>{4, 24, 1, 0}));
}

TEST(FractionalLoads, KeepTheRatiosOfSharesAveragesAndHugeValues) {
  std::mt19937_64 random(1);
  for (double scale : {1e-300, 1e-12, 1.0, 1e6, 1e14}) {
    std::vector<double> values(58 * 256);
    for (double& value : values) value = scale * std::exp(std::normal_distribution(0.0, 1.0)(random)) / 3.0;
    const ScaledLoads scaled = scaled_loads(values, "f", "counts");
    const auto sum = std::accumulate(scaled.loads.begin(), scaled.loads.end(), std::int64_t{0});
    EXPECT_LE(sum, std::int64_t{1} << 53) << scale;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(std::ldexp(static_cast<double>(scaled.loads[i]), -scaled.exponent) / values[i], 1, 1e-9)
          << "seed 1, scale " << scale << ", value " << i;
  }
}

TEST(FractionalLoads, WhatIsAboveZeroStaysAboveZero) {
  const ScaledLoads scaled = scaled_loads(std::vector<double>{1e-30, 0, 1e6 / 3}, "f", "counts");
  EXPECT_EQ(scaled.loads[0], 1);
  EXPECT_EQ(scaled.loads[1], 0);
}

TEST(FractionalLoads, RefusesWhatIsNoLoad) {
  for (double bad : {-0.5, std::nan(""), std::numeric_limits<double>::infinity(), 0x1p63})
    EXPECT_THROW(scaled_loads(std::vector<double>{1.5, bad}, "f", "counts"), ParseError) << bad;
  EXPECT_THROW(scaled_loads(std::vector<double>{0x1p62, 0x1p62}, "f", "counts"), ParseError);
}

}  // namespace
}  // namespace evenkeel::internal
