// Activations compared with fp64 over a wide range, and their derivatives with finite differences.
#include "evenkeel/compute/cpu/internal/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Activation kAll[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};

double exact(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::swiglu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::clamped_swiglu: {
      const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
      return g / (1 + std::exp(-static_cast<double>(kClampAlpha) * g)) * (u + 1);
    }
    case Activation::gelu:
      return up * 0.5 * std::erfc(-up / std::sqrt(2.0));
  }
  return 0;
}

struct Result {
  float h, again, by_gate, by_up;
};

Result at(Activation activation, float gate, float up) {
  const float one = 1;
  Result result{};
  activate(activation, 1, &gate, &up, &result.h);
  activate_backward(activation, 1, &gate, &up, &one, &result.again, &result.by_gate, &result.by_up);
  return result;
}

std::vector<float> sweep() {
  std::vector<float> values = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-6f, -1e-6f};
  for (float x = -30; x <= 30; x += 0.37f) values.push_back(x);
  return values;
}

TEST(Activations, AreThoseOfDoublePrecisionWithinAFewUnits) {
  for (Activation activation : kAll)
    for (float gate : sweep())
      for (float up : sweep()) {
        const double expected = exact(activation, static_cast<double>(gate), static_cast<double>(up));
        // The relative error of e^x grows with |x|, because x itself is rounded.
        const double reach = 8 + std::abs(static_cast<double>(gate)) + std::abs(static_cast<double>(up * up));
        const double bound = 0x1p-23 * reach * std::abs(expected) + 1e-36;
        const Result result = at(activation, gate, up);
        ASSERT_NEAR(static_cast<double>(result.h), expected, bound)
            << name_of(activation) << " of " << gate << ", " << up;
        ASSERT_EQ(result.h, result.again);
      }
}

TEST(Activations, HaveTheSlopesThatDifferencesHave) {
  for (Activation activation : kAll)
    for (float gate = -9.05f; gate < 9.2f; gate += 0.3f)
      for (float up = -9.05f; up < 9.2f; up += 0.3f) {
        const auto f = [&](double dg, double du) {
          return exact(activation, static_cast<double>(gate) + dg, static_cast<double>(up) + du);
        };
        constexpr double s = 1e-5;
        const Result result = at(activation, gate, up);
        ASSERT_NEAR(static_cast<double>(result.by_gate), (f(s, 0) - f(-s, 0)) / (2 * s), 2e-5)
            << name_of(activation) << " of " << gate << ", " << up;
        ASSERT_NEAR(static_cast<double>(result.by_up), (f(0, s) - f(0, -s)) / (2 * s), 2e-5)
            << name_of(activation) << " of " << gate << ", " << up;
      }
}

TEST(Activations, HaveLimitsAndKeepWhatIsNoNumber) {
  EXPECT_EQ(at(Activation::swiglu, 1e30f, 1).h, 1e30f);
  EXPECT_NEAR(at(Activation::swiglu, -1e3f, 1).h, 0, 1e-30);
  EXPECT_EQ(at(Activation::gelu, 0, 1e4f).h, 1e4f);
  EXPECT_NEAR(at(Activation::gelu, 0, -1e4f).h, 0, 1e-30);
  EXPECT_EQ(at(Activation::swiglu, kInf, 1).h, kInf);
  EXPECT_EQ(at(Activation::clamped_swiglu, kInf, kInf).h, at(Activation::clamped_swiglu, 7, 7).h);
  for (Activation activation : {Activation::swiglu, Activation::clamped_swiglu}) {
    EXPECT_TRUE(std::isnan(at(activation, kNaN, 1).h)) << name_of(activation);
    EXPECT_TRUE(std::isnan(at(activation, 1, kNaN).h)) << name_of(activation);
  }
  EXPECT_TRUE(std::isnan(at(Activation::gelu, 0, kNaN).h));
}

TEST(ClampedSwiglu, PassesGradientAtItsLimitsAndNoneBeyond) {
  const float beyond = std::nextafter(kClampLimit, 8.0f);
  EXPECT_NE(at(Activation::clamped_swiglu, kClampLimit, 1).by_gate, 0);
  EXPECT_EQ(at(Activation::clamped_swiglu, beyond, 1).by_gate, 0);
  EXPECT_NE(at(Activation::clamped_swiglu, -100, 1).h, 1);
  for (float sign : {1.0f, -1.0f}) {
    EXPECT_NE(at(Activation::clamped_swiglu, 1, sign * kClampLimit).by_up, 0);
    EXPECT_EQ(at(Activation::clamped_swiglu, 1, sign * beyond).by_up, 0);
  }
}

TEST(ClampedSwiglu, SavedInBf16StaysBeyondItsLimitsAndGivesTheSame) {
  for (float x : {6.99f, 7.0f, 7.001f, 7.02f, 7.04f, -6.99f, -7.0f, -7.001f, -7.02f, -9.0f}) {
    float gate = x, up = x;
    keep_beyond_limit(1, &gate, &up);
    EXPECT_EQ(static_cast<float>(bf16(gate)) > 7, x > 7) << x;
    EXPECT_EQ(std::abs(static_cast<float>(bf16(up))) > 7, std::abs(x) > 7) << x;
    EXPECT_EQ(at(Activation::clamped_swiglu, gate, up).h, at(Activation::clamped_swiglu, x, x).h);
  }
}

TEST(Activations, DoNotDependOnTheirPlaceInARow) {
  for (Activation activation : kAll)
    for (std::int64_t n : {1, 7, 15, 16, 17, 33, 100}) {
      std::vector<float> pre(static_cast<std::size_t>(2 * n)), h(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < pre.size(); ++i) pre[i] = std::sin(static_cast<float>(i * i)) * 8;
      activate(activation, n, pre.data(), pre.data() + n, h.data());
      for (std::size_t i = 0; i < h.size(); ++i)
        ASSERT_EQ(h[i], at(activation, pre[i], pre[i + h.size()]).h) << n << " " << i;
    }
}

TEST(ActivationNames, AreReadBackAndOthersRefused) {
  for (Activation activation : kAll) EXPECT_EQ(parse_activation(name_of(activation)), activation);
  EXPECT_THROW(parse_activation("relu"), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel::internal
