// The activations, one row at a time in f32, and their derivatives. Results may be written over gate and up:
// h over either, grad_gate over gate, grad_up over up.
#pragma once

#include <cstdint>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/compute/internal/clamp.h"

namespace evenkeel::internal {

// h[n] of n pre-activations of one row; gelu has no gate and does not read it.
void activate(Activation activation, std::int64_t n, const float* gate, const float* up, float* h);

// Given d loss / dh: h again, d loss / d gate and d loss / d up.
void activate_backward(Activation activation, std::int64_t n, const float* gate, const float* up,
                       const float* grad_h, float* h, float* grad_gate, float* grad_up);

// Moves clamped_swiglu's pre-activations that are beyond the limit by less than bf16 can tell to the next
// bf16 number beyond it. Changes nothing that activate() computes of them.
void keep_beyond_limit(std::int64_t n, float* gate, float* up);

}  // namespace evenkeel::internal
