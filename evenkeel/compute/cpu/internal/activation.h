// The activations, one row at a time in f32, and their derivatives.
#pragma once

#include <cstdint>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

// gpt-oss's constants.
inline constexpr float kClampLimit = 7.0f;
inline constexpr float kClampAlpha = 1.702f;

// h[F] of one row of pre-activations: gate then up, or up alone for gelu.
void activate(Activation activation, std::int64_t F, const float* pre, float* h);

// Given d loss / dh: h again, and d loss / d pre.
void activate_backward(Activation activation, std::int64_t F, const float* pre, const float* grad_h, float* h,
                       float* grad_pre);

// Moves clamped_swiglu's pre-activations that are beyond the limit by less than bf16 can tell to the next
// bf16 number beyond it. Changes nothing that activate() computes of them.
void keep_beyond_limit(std::int64_t F, float* pre);

}  // namespace evenkeel::internal
