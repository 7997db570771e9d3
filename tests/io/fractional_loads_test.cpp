// Fractional loads are scaled to whole numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/found_routing.h"

namespace evenkeel::internal {
namespace {

struct Scaled {
  std::vector<std::int64_t> loads;
  std::vector<std::string> notes;
};

Scaled scaled(const std::vector<double>& values) {
  Scaled made;
  made.loads = scaled_loads(values, "f", "counts", made.notes);
  return made;
}

TEST(FractionalLoads, LeavesWholeNumbersAsTheyAre) {
  const Scaled made = scaled({0, 1, 7, 0x1p53, 0x1p60});
  EXPECT_TRUE(made.notes.empty());
  EXPECT_EQ(made.loads, (std::vector<std::int64_t>{0, 1, 7, 1LL << 53, 1LL << 60}));
}

TEST(FractionalLoads, StayExactWhereAPowerOfTwoMakesThemWhole) {
  const Scaled made = scaled({0.5, 3, 0.125, 0});
  EXPECT_EQ(made.notes, std::vector<std::string>{"loads that are not whole numbers are scaled by 2^3"});
  EXPECT_EQ(made.loads, (std::vector<std::int64_t>{4, 24, 1, 0}));
}

TEST(FractionalLoads, KeepTheRatiosOfSharesAveragesAndHugeValues) {
  std::mt19937_64 random(1);
  for (double scale : {1e-300, 1e-12, 1.0, 1e6, 1e14}) {
    std::vector<double> values(58 * 256);
    for (double& value : values) value = scale * std::exp(std::normal_distribution(0.0, 1.0)(random)) / 3.0;
    const Scaled made = scaled(values);
    const auto sum = std::accumulate(made.loads.begin(), made.loads.end(), std::int64_t{0});
    EXPECT_LE(sum, std::int64_t{1} << 53) << scale;
    const int exponent = std::stoi(made.notes.at(0).substr(made.notes.at(0).find('^') + 1));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(std::ldexp(static_cast<double>(made.loads[i]), -exponent) / values[i], 1, 1e-9)
          << "seed 1, scale " << scale << ", value " << i;
  }
}

TEST(FractionalLoads, WhatIsAboveZeroStaysAboveZero) {
  const Scaled made = scaled({1e-30, 0, 1e6 / 3});
  EXPECT_EQ(made.loads[0], 1);
  EXPECT_EQ(made.loads[1], 0);
}

TEST(FractionalLoads, RefusesWhatIsNoLoad) {
  for (double bad : {-0.5, std::nan(""), std::numeric_limits<double>::infinity(), 0x1p63})
    EXPECT_THROW(scaled({1.5, bad}), ParseError) << bad;
  EXPECT_THROW(scaled({0x1p62, 0x1p62}), ParseError);
}

}  // namespace
}  // namespace evenkeel::internal
