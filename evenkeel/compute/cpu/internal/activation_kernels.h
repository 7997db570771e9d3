// The functions that activation_kernels.inl leaves for each kind of vector unit.
#pragma once

#include <cstdint>

namespace evenkeel::internal {

struct ActivationKernels {
  using Gated = void(std::int64_t F, const float* gate, const float* up, float* h);
  using GatedBackward = void(std::int64_t F, const float* gate, const float* up, const float* grad_h,
                             float* h, float* grad_gate, float* grad_up);
  Gated* swiglu;
  GatedBackward* swiglu_backward;
  Gated* clamped_swiglu;
  GatedBackward* clamped_swiglu_backward;
  void (*gelu)(std::int64_t F, const float* up, float* h);
  void (*gelu_backward)(std::int64_t F, const float* up, const float* grad_h, float* h, float* grad_up);
};

}  // namespace evenkeel::internal
