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

}  // namespace evenkeel::internal
