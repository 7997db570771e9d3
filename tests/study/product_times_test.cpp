#include "evenkeel/study/internal/product_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace evenkeel::internal {
namespace {

double uniform(std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random);
}

GroupTime group_time(const ProductTimes& of, std::int64_t rows) {
  const double products = static_cast<double>(rows) * of.row;
  return {rows, std::max(products, of.weights) + (1 - of.overlap) * std::min(products, of.weights)};
}

TEST(ProductTimes, AreThoseThatTheTimesWereMadeOf) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const ProductTimes made{1e-5 * (0.5 + uniform(random)), 1e-3 * (0.2 + uniform(random)), uniform(random)};
    const GroupTime one = group_time(made, 1), many = group_time(made, 512);
    const ProductTimes fit = fit_products(one, group_time(made, rows_between(one, many)), many);
    ASSERT_NEAR(fit.row, made.row, 1e-3 * made.row);
    ASSERT_NEAR(fit.weights, made.weights, 1e-3 * made.weights);
    ASSERT_NEAR(fit.overlap, made.overlap, 1e-3);
  }
}

TEST(ProductTimes, AreTheNearestWhereTheTimesAreNoneThatCanBe) {
  const GroupTime one{1, 1e-3}, many{512, 1e-2};
  EXPECT_EQ(fit_products(one, {51, 1e-4}, many).overlap, 1);  // in less than either alone
  EXPECT_EQ(fit_products(one, {51, 9e-3}, many).overlap, 0);  // in more than both
  for (const double seconds : {0.0, 1e-3}) {
    const ProductTimes times = fit_products({1, seconds}, {1, 0}, {512, 0});
    EXPECT_GT(times.row, 0);
    EXPECT_GT(times.weights, 0);
    EXPECT_GE(times.overlap, 0);
    EXPECT_LE(times.overlap, 1);
  }
}

TEST(ProductTimes, MeetWhereReadingTakesAsLongAsMultiplying) {
  EXPECT_EQ(rows_between({1, 1e-3}, {512, 1e-2}), 51);
  EXPECT_EQ(rows_between({1, 1e-6}, {512, 1}), 1);
  EXPECT_EQ(rows_between({1, 1}, {512, 1e-3}), 512);
}

}  // namespace
}  // namespace evenkeel::internal
