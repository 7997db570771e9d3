#include "evenkeel/compute/cpu/internal/activation.h"

#include <algorithm>
#include <bit>

#include "evenkeel/device/cpu/target_clones.h"

namespace evenkeel::internal {

namespace {

// e^x to about one unit in the last place: x = n ln 2 + r, a polynomial in |r| <= ln 2 / 2 (the Taylor series
// to the 7th power), and 2^n made from its bits.
EVENKEEL_INLINE float exp_f32(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float bounded = std::min(std::max(x, -87.0f), 88.0f);
  const float n = (bounded * kLog2e + kRound) - kRound;
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

EVENKEEL_INLINE float sigmoid(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

// The normal distribution's Phi, by Abramowitz and Stegun 7.1.26 (erf within 1.5e-7).
EVENKEEL_INLINE float normal_cdf(float x) {
  constexpr float kInvSqrt2 = 0.70710678118654752f;
  const float z = (x < 0 ? -x : x) * kInvSqrt2;
  const float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float upper_tail = 0.5f * p * t * exp_f32(-z * z);
  return x < 0 ? upper_tail : 1.0f - upper_tail;
}

EVENKEEL_INLINE float normal_density(float x) {
  return 0.39894228040143268f * exp_f32(-0.5f * x * x);
}

EVENKEEL_VECTOR_CLONES void swiglu(std::int64_t F, const float* gate, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; ++i) h[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

EVENKEEL_VECTOR_CLONES void swiglu_backward(std::int64_t F, const float* gate, const float* up,
                                            const float* grad_h, float* h, float* grad_gate, float* grad_up) {
  for (std::int64_t i = 0; i < F; ++i) {
    const float s = sigmoid(gate[i]);
    const float silu = gate[i] * s;
    h[i] = silu * up[i];
    grad_gate[i] = grad_h[i] * up[i] * (s + silu * (1.0f - s));
    grad_up[i] = grad_h[i] * silu;
  }
}

EVENKEEL_VECTOR_CLONES void clamped_swiglu(std::int64_t F, const float* gate, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; ++i) {
    const float g = std::min(gate[i], kClampLimit);
    const float u = std::min(std::max(up[i], -kClampLimit), kClampLimit);
    h[i] = g * sigmoid(kClampAlpha * g) * (u + 1.0f);
  }
}

EVENKEEL_VECTOR_CLONES void clamped_swiglu_backward(std::int64_t F, const float* gate, const float* up,
                                                    const float* grad_h, float* h, float* grad_gate,
                                                    float* grad_up) {
  for (std::int64_t i = 0; i < F; ++i) {
    const float g = std::min(gate[i], kClampLimit);
    const float u = std::min(std::max(up[i], -kClampLimit), kClampLimit);
    const float s = sigmoid(kClampAlpha * g);
    const float glu = g * s;
    h[i] = glu * (u + 1.0f);
    const float slope = grad_h[i] * (u + 1.0f) * (s + kClampAlpha * glu * (1.0f - s));
    grad_gate[i] = gate[i] <= kClampLimit ? slope : 0.0f;
    grad_up[i] = up[i] == u ? grad_h[i] * glu : 0.0f;
  }
}

EVENKEEL_VECTOR_CLONES void gelu(std::int64_t F, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; ++i) h[i] = up[i] * normal_cdf(up[i]);
}

EVENKEEL_VECTOR_CLONES void gelu_backward(std::int64_t F, const float* up, const float* grad_h, float* h,
                                          float* grad_up) {
  for (std::int64_t i = 0; i < F; ++i) {
    const float phi = normal_cdf(up[i]);
    h[i] = up[i] * phi;
    grad_up[i] = grad_h[i] * (phi + up[i] * normal_density(up[i]));
  }
}

}  // namespace

void activate(Activation activation, std::int64_t F, const float* pre, float* h) {
  switch (activation) {
    case Activation::swiglu:
      return swiglu(F, pre, pre + F, h);
    case Activation::clamped_swiglu:
      return clamped_swiglu(F, pre, pre + F, h);
    case Activation::gelu:
      return gelu(F, pre, h);
  }
}

void activate_backward(Activation activation, std::int64_t F, const float* pre, const float* grad_h, float* h,
                       float* grad_pre) {
  switch (activation) {
    case Activation::swiglu:
      return swiglu_backward(F, pre, pre + F, grad_h, h, grad_pre, grad_pre + F);
    case Activation::clamped_swiglu:
      return clamped_swiglu_backward(F, pre, pre + F, grad_h, h, grad_pre, grad_pre + F);
    case Activation::gelu:
      return gelu_backward(F, pre, grad_h, h, grad_pre);
  }
}

}  // namespace evenkeel::internal
