// The GPU's activations, compiled for the host, compared with the CPU's.
#include "evenkeel/compute/cuda/internal/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cuda/internal/eight.h"

namespace evenkeel::cuda {
namespace {

template <Activation kActivation>
void expect_same(float gate, float up) {
  const float one = 1;
  float h = 0, again = 0, by_gate = 0, by_up = 0;
  evenkeel::internal::activate(kActivation, 1, &gate, &up, &h);
  evenkeel::internal::activate_backward(kActivation, 1, &gate, &up, &one, &again, &by_gate, &by_up);
  const Derivatives here = differentiate<kActivation>(gate, up);
  const auto expect_near = [&](float actual, float expected) {
    EXPECT_NEAR(actual, expected, 1e-5f * (1 + std::abs(gate) + std::abs(up)) * (std::abs(expected) + 0.1f))
        << name_of(kActivation) << " of " << gate << ", " << up;
  };
  expect_near(activate<kActivation>(gate, up), h);
  expect_near(here.h, h);
  if (is_gated(kActivation)) expect_near(here.by_gate, by_gate);
  expect_near(here.by_up, by_up);
}

TEST(GpuActivations, AreTheCpusWithinAFewUnits) {
  for (float gate = -12; gate < 12; gate += 0.31f)
    for (float up = -12; up < 12; up += 0.29f) {
      expect_same<Activation::swiglu>(gate, up);
      expect_same<Activation::clamped_swiglu>(gate, up);
      expect_same<Activation::gelu>(gate, up);
    }
}

TEST(GpuActivations, KeepWhatIsNoNumber) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(activate<Activation::swiglu>(nan, 1)));
  EXPECT_TRUE(std::isnan(activate<Activation::clamped_swiglu>(nan, 1)));
  EXPECT_TRUE(std::isnan(activate<Activation::clamped_swiglu>(1, nan)));
  EXPECT_TRUE(std::isnan(activate<Activation::gelu>(0, nan)));
}

TEST(GpuClampedSwiglu, SavesThePreActivationsThatTheCpuSaves) {
  for (float x : {6.99f, 7.0f, 7.001f, 7.02f, 7.04f, -6.99f, -7.0f, -7.001f, -7.02f, -9.0f, 0.5f}) {
    float gate = x, up = x;
    evenkeel::internal::keep_beyond_limit(1, &gate, &up);
    EXPECT_EQ(to_be_saved<Activation::clamped_swiglu>(x, false), gate) << x;
    EXPECT_EQ(to_be_saved<Activation::clamped_swiglu>(x, true), up) << x;
    EXPECT_EQ(to_be_saved<Activation::swiglu>(x, true), x);
  }
}

TEST(EightNumbers, AreReadAndWrittenWholeOrInPartWhereverTheyLie) {
  for (int offset = 0; offset < 9; ++offset)
    for (int count = 0; count <= 8; ++count) {
      alignas(16) bf16 from[20], to[20];
      alignas(16) float from_f32[20], to_f32[20];
      for (int i = 0; i < 20; ++i) {
        from_f32[i] = static_cast<float>(i + 1);
        from[i] = bf16(from_f32[i]);
        to[i] = bf16(-1.0f);
        to_f32[i] = -1;
      }
      store(widened(fetch(from + offset, count)), to + offset, count);
      store(widened(fetch(from_f32 + offset, count)), to_f32 + offset, count);
      for (int i = 0; i < 20; ++i) {
        const bool inside = i >= offset && i < offset + count;
        ASSERT_EQ(static_cast<float>(to[i]), inside ? from_f32[i] : -1.0f) << offset << " " << count;
        ASSERT_EQ(to_f32[i], inside ? from_f32[i] : -1.0f) << offset << " " << count;
      }
      for (int i = count; i < 8; ++i) ASSERT_EQ(widened(fetch(from + offset, count)).at[i], 0.0f);
    }
}

}  // namespace
}  // namespace evenkeel::cuda
