// The functions that activation_kernels.inl defines for each vector instruction set.
#pragma once

#include <cstdint>

namespace evenkeel::internal {

// Indexed by Activation; see activate() and activate_backward().
struct ActivationKernels {
  using Forward = void(std::int64_t F, const float* gate, const float* up, float* h);
  using Backward = void(std::int64_t F, const float* gate, const float* up, const float* grad_h, float* h,
                        float* grad_gate, float* grad_up);
  Forward* forward[3];
  Backward* backward[3];
};

}  // namespace evenkeel::internal
