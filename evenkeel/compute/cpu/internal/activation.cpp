#include "evenkeel/compute/cpu/internal/activation.h"

#include "evenkeel/compute/cpu/internal/activation_kernels.h"
#include "evenkeel/device/cpu/vector_isa.h"

namespace evenkeel::internal {

namespace baseline {
extern const ActivationKernels activation_kernels;
}
namespace avx2 {
extern const ActivationKernels activation_kernels;
}
namespace avx512 {
extern const ActivationKernels activation_kernels;
}

namespace {

const ActivationKernels& best() {
  static const ActivationKernels& kernels =
      vector::best_of(baseline::activation_kernels, avx2::activation_kernels, avx512::activation_kernels);
  return kernels;
}

}  // namespace

void activate(Activation activation, std::int64_t n, const float* gate, const float* up, float* h) {
  best().forward[static_cast<int>(activation)](n, gate, up, h);
}

void activate_backward(Activation activation, std::int64_t n, const float* gate, const float* up,
                       const float* grad_h, float* h, float* grad_gate, float* grad_up) {
  best().backward[static_cast<int>(activation)](n, gate, up, grad_h, h, grad_gate, grad_up);
}

void keep_beyond_limit(std::int64_t n, float* gate, float* up) {
  const auto beyond = [](float x) { return x > kClampLimit && x < kNextBeyondLimit ? kNextBeyondLimit : x; };
  for (std::int64_t i = 0; i < n; ++i) {
    gate[i] = beyond(gate[i]);
    up[i] = -beyond(-beyond(up[i]));
  }
}

}  // namespace evenkeel::internal
