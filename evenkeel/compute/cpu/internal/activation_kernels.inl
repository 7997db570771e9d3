// The activations' inner loops, compiled for one vector instruction set.
#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/activation_kernels.h"
#include "evenkeel/device/cpu/vector.h"

namespace evenkeel::internal::EVENKEEL_VECTOR_ISA {

namespace {

using vector::Floats;
using vector::kLanes;
using vector::least;
using vector::load;
using vector::most;
using vector::store;

EVENKEEL_INLINE Floats sigmoid(Floats x) {
  return 1.0f / (1.0f + vector::exp(-x));
}

// The normal distribution's Phi, by the Chebyshev fit of erfc in Numerical Recipes (section 6.2). Its
// relative error is below 1.2e-7, so the tail is as exact as the middle.
EVENKEEL_INLINE Floats normal_cdf(Floats x) {
  constexpr float kInvSqrt2 = 0.70710678118654752f;
  const Floats z = (x < 0.0f ? -x : x) * kInvSqrt2;
  const Floats t = 1.0f / (1.0f + 0.5f * z);
  Floats p = t * 0.17087277f - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  const Floats upper_tail = 0.5f * t * vector::exp(p - z * z);
  return x < 0.0f ? upper_tail : 1.0f - upper_tail;
}

EVENKEEL_INLINE Floats normal_density(Floats x) {
  return 0.39894228040143268f * vector::exp(-0.5f * x * x);
}

void swiglu(std::int64_t F, const float* gate, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats g = load(gate + i, F - i);
    store(g * sigmoid(g) * load(up + i, F - i), h + i, F - i);
  }
}

void swiglu_backward(std::int64_t F, const float* gate, const float* up, const float* grad_h, float* h,
                     float* grad_gate, float* grad_up) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats g = load(gate + i, F - i);
    const Floats u = load(up + i, F - i);
    const Floats grad = load(grad_h + i, F - i);
    const Floats s = sigmoid(g);
    const Floats silu = g * s;
    store(silu * u, h + i, F - i);
    store(grad * u * (s + silu * (1.0f - s)), grad_gate + i, F - i);
    store(grad * silu, grad_up + i, F - i);
  }
}

void clamped_swiglu(std::int64_t F, const float* gate, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats g = least(load(gate + i, F - i), kClampLimit);
    const Floats u = least(most(load(up + i, F - i), -kClampLimit), kClampLimit);
    store(g * sigmoid(kClampAlpha * g) * (u + 1.0f), h + i, F - i);
  }
}

void clamped_swiglu_backward(std::int64_t F, const float* gate, const float* up, const float* grad_h,
                             float* h, float* grad_gate, float* grad_up) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats gate_in = load(gate + i, F - i);
    const Floats up_in = load(up + i, F - i);
    const Floats grad = load(grad_h + i, F - i);
    const Floats g = least(gate_in, kClampLimit);
    const Floats u = least(most(up_in, -kClampLimit), kClampLimit);
    const Floats s = sigmoid(kClampAlpha * g);
    const Floats glu = g * s;
    store(glu * (u + 1.0f), h + i, F - i);
    const Floats slope = grad * (u + 1.0f) * (s + kClampAlpha * glu * (1.0f - s));
    store(gate_in <= kClampLimit ? slope : Floats{}, grad_gate + i, F - i);
    store(up_in == u ? grad * glu : Floats{}, grad_up + i, F - i);
  }
}

void gelu(std::int64_t F, const float*, const float* up, float* h) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats u = load(up + i, F - i);
    store(u * normal_cdf(u), h + i, F - i);
  }
}

void gelu_backward(std::int64_t F, const float*, const float* up, const float* grad_h, float* h, float*,
                   float* grad_up) {
  for (std::int64_t i = 0; i < F; i += kLanes) {
    const Floats u = load(up + i, F - i);
    const Floats phi = normal_cdf(u);
    store(u * phi, h + i, F - i);
    store(load(grad_h + i, F - i) * (phi + u * normal_density(u)), grad_up + i, F - i);
  }
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels = {{swiglu, clamped_swiglu, gelu},
                                              {swiglu_backward, clamped_swiglu_backward, gelu_backward}};

}  // namespace evenkeel::internal::EVENKEEL_VECTOR_ISA
