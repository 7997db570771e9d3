// The activations and their derivatives, one row at a time in f32. Results may overwrite gate and up: h may
// overwrite either, grad_gate may overwrite gate, grad_up may overwrite up.
#pragma once

#include <cstdint>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/compute/internal/clamp.h"

namespace evenkeel::internal {

// Computes h[n] from n pre-activations of one row; gelu has no gate and does not read it.
void activate(Activation activation, std::int64_t n, const float* gate, const float* up, float* h);

// Computes h, d loss / d gate and d loss / d up from `grad_h` = d loss / dh.
void activate_backward(Activation activation, std::int64_t n, const float* gate, const float* up,
                       const float* grad_h, float* h, float* grad_gate, float* grad_up);

// If a pre-activation of clamped_swiglu is beyond the limit by less than bf16 resolves, replaces it by the
// next bf16 number beyond the limit. This does not change the result of activate().
void keep_beyond_limit(std::int64_t n, float* gate, float* up);

}  // namespace evenkeel::internal
