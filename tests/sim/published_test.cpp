// Predictions beside what was measured elsewhere. Only rates and even steps are known to the simulator.
#include "tests/sim/published.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace evenkeel::published {
namespace {

Errors shown(const char* what, const std::vector<Prediction>& predictions) {
  const Errors errors = errors_of(predictions);
  fmt::print("{:28} {:4} figures, error median {:4.1f} %, 90th percentile {:4.1f} %, signed {:+5.1f} %\n",
             what, predictions.size(), 100 * errors.median, 100 * errors.p90, 100 * errors.signed_median);
  return errors;
}

TEST(PublishedSteps, CopiesOverNone) {
  const std::vector<Prediction> predictions = copies_over_none(/*draws=*/3);
  EXPECT_EQ(predictions.size(), 702u);
  EXPECT_LE(shown("copies over none", predictions).median, 0.20);
}

TEST(PublishedSteps, SkewedOverEven) {
  const std::vector<Prediction> predictions = skewed_over_even(/*draws=*/3);
  EXPECT_EQ(predictions.size(), 300u);
  EXPECT_LE(shown("skewed over even", predictions).median, 0.20);
}

TEST(PublishedSteps, ForwardOnAnH200) {
  EXPECT_LE(shown("H200, ms", h200_steps(false)).median, 0.10);
  EXPECT_LE(shown("H200, level over ep", h200_steps(true)).median, 0.10);
}

}  // namespace
}  // namespace evenkeel::published
