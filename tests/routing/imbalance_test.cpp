#include "evenkeel/routing/imbalance.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

using Loads = std::vector<std::int64_t>;

TEST(Imbalance, SaysTheSameThreeWays) {
  const Imbalance said = imbalance(Loads{6, 2, 2, 2});
  EXPECT_DOUBLE_EQ(said.max_over_mean, 2);
  EXPECT_DOUBLE_EQ(said.mean_over_max, 0.5);
  EXPECT_DOUBLE_EQ(said.relative_excess, 1);
}

TEST(Imbalance, OfEqualLoadsIsExactlyNone) {
  for (std::int64_t load : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1} << 40})
    EXPECT_EQ(imbalance(Loads(7, load)), (Imbalance{1, 1, 0})) << load;
}

TEST(Imbalance, OfNothingIsNone) {
  EXPECT_EQ(imbalance(Loads{}), (Imbalance{1, 1, 0}));
  EXPECT_EQ(imbalance(Loads{0, 0, 0}), (Imbalance{1, 1, 0}));
}

TEST(Imbalance, ThreeWaysAgreeForRandomLoads) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    Loads loads(1 + random() % 50);
    for (auto& load : loads) load = static_cast<std::int64_t>(random() % 1000);
    loads[0] += 1;
    const Imbalance said = imbalance(loads);
    EXPECT_NEAR(said.max_over_mean * said.mean_over_max, 1, 1e-12) << i;
    EXPECT_NEAR(said.max_over_mean - 1, said.relative_excess, 1e-12) << i;
    EXPECT_GE(said.max_over_mean, 1) << i;
  }
}

TEST(Imbalance, RefusesNegativeLoadsAndTotalsThatDoNotFit) {
  EXPECT_THROW(imbalance(Loads{1, -1}), InvalidArgument);
  EXPECT_THROW(imbalance(Loads{std::numeric_limits<std::int64_t>::max(), 1}), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
