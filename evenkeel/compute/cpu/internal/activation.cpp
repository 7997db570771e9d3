#include "evenkeel/compute/cpu/internal/activation.h"

#include "evenkeel/compute/cpu/internal/activation_kernels.h"
#include "evenkeel/device/cpu/vector_isa.h"

namespace evenkeel::internal {

namespace baseline {
extern const ActivationKernels kernels;
}
namespace avx2 {
extern const ActivationKernels kernels;
}
namespace avx512 {
extern const ActivationKernels kernels;
}

namespace {

const ActivationKernels& best() {
  static const ActivationKernels& kernels =
      vector::best_of(baseline::kernels, avx2::kernels, avx512::kernels);
  return kernels;
}

}  // namespace

void activate(Activation activation, std::int64_t F, const float* pre, float* h) {
  switch (activation) {
    case Activation::swiglu:
      return best().swiglu(F, pre, pre + F, h);
    case Activation::clamped_swiglu:
      return best().clamped_swiglu(F, pre, pre + F, h);
    case Activation::gelu:
      return best().gelu(F, pre, h);
  }
}

void activate_backward(Activation activation, std::int64_t F, const float* pre, const float* grad_h, float* h,
                       float* grad_pre) {
  switch (activation) {
    case Activation::swiglu:
      return best().swiglu_backward(F, pre, pre + F, grad_h, h, grad_pre, grad_pre + F);
    case Activation::clamped_swiglu:
      return best().clamped_swiglu_backward(F, pre, pre + F, grad_h, h, grad_pre, grad_pre + F);
    case Activation::gelu:
      return best().gelu_backward(F, pre, grad_h, h, grad_pre);
  }
}

void keep_beyond_limit(std::int64_t F, float* pre) {
  constexpr float kNextBeyond = kClampLimit + 0x1p-5f;
  for (std::int64_t i = 0; i < 2 * F; ++i) {
    const bool is_up = i >= F;
    if (pre[i] > kClampLimit && pre[i] < kNextBeyond) pre[i] = kNextBeyond;
    if (is_up && pre[i] < -kClampLimit && pre[i] > -kNextBeyond) pre[i] = -kNextBeyond;
  }
}

}  // namespace evenkeel::internal
