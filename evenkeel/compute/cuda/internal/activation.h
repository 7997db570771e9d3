// The activations and their derivatives for single f32 values.
#pragma once

#include <cmath>

#include "evenkeel/base/host_device.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/compute/internal/clamp.h"

namespace evenkeel::cuda {

namespace internal {

EVENKEEL_ALWAYS_INLINE float sigmoid(float x) {
#if defined(__CUDA_ARCH__)
  return __fdividef(1.0f, 1.0f + __expf(-x));
#else
  return 1.0f / (1.0f + std::exp(-x));
#endif
}

EVENKEEL_ALWAYS_INLINE float normal_cdf(float x) {
  constexpr float kInvSqrt2 = 0.70710678118654752f;
  return 0.5f * ::erfcf(-x * kInvSqrt2);
}

EVENKEEL_ALWAYS_INLINE float normal_density(float x) {
  return 0.39894228040143268f * ::expf(-0.5f * x * x);
}

// Comparisons instead of fmin and fmax, so that NaN stays NaN.
EVENKEEL_ALWAYS_INLINE float at_most(float x, float limit) {
  return x > limit ? limit : x;
}
EVENKEEL_ALWAYS_INLINE float at_least(float x, float limit) {
  return x < limit ? limit : x;
}
EVENKEEL_ALWAYS_INLINE float beyond_limit(float x) {
  using evenkeel::internal::kClampLimit;
  using evenkeel::internal::kNextBeyondLimit;
  return x > kClampLimit && x < kNextBeyondLimit ? kNextBeyondLimit : x;
}

}  // namespace internal

// `gate` is not read if the activation has none.
template <Activation kActivation>
EVENKEEL_ALWAYS_INLINE float activate(float gate, float up) {
  using evenkeel::internal::kClampAlpha;
  using evenkeel::internal::kClampLimit;
  if constexpr (kActivation == Activation::swiglu) {
    return gate * internal::sigmoid(gate) * up;
  } else if constexpr (kActivation == Activation::clamped_swiglu) {
    const float g = internal::at_most(gate, kClampLimit);
    const float u = internal::at_most(internal::at_least(up, -kClampLimit), kClampLimit);
    return g * internal::sigmoid(kClampAlpha * g) * (u + 1.0f);
  } else {
    return up * internal::normal_cdf(up);
  }
}

struct Derivatives {
  float h;        // the activation itself
  float by_gate;  // dh / dgate
  float by_up;
};

template <Activation kActivation>
EVENKEEL_ALWAYS_INLINE Derivatives differentiate(float gate, float up) {
  using evenkeel::internal::kClampAlpha;
  using evenkeel::internal::kClampLimit;
  if constexpr (kActivation == Activation::swiglu) {
    const float s = internal::sigmoid(gate);
    const float silu = gate * s;
    return {silu * up, up * (s + silu * (1.0f - s)), silu};
  } else if constexpr (kActivation == Activation::clamped_swiglu) {
    const float g = internal::at_most(gate, kClampLimit);
    const float u = internal::at_most(internal::at_least(up, -kClampLimit), kClampLimit);
    const float s = internal::sigmoid(kClampAlpha * g);
    const float glu = g * s;
    const float slope = (u + 1.0f) * (s + kClampAlpha * glu * (1.0f - s));
    return {glu * (u + 1.0f), gate <= kClampLimit ? slope : 0.0f, up == u ? glu : 0.0f};
  } else {
    const float phi = internal::normal_cdf(up);
    return {up * phi, 0.0f, phi + up * internal::normal_density(up)};
  }
}

// Adjusts a pre-activation before it is rounded and saved for backward; see internal/clamp.h.
template <Activation kActivation>
EVENKEEL_ALWAYS_INLINE float to_be_saved(float pre, bool is_up) {
  if constexpr (kActivation != Activation::clamped_swiglu) return pre;
  const float above = internal::beyond_limit(pre);
  return is_up ? -internal::beyond_limit(-above) : above;
}

}  // namespace evenkeel::cuda
