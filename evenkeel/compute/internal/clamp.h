// The constants of clamped_swiglu, which are gpt-oss's.
#pragma once

namespace evenkeel::internal {

inline constexpr float kClampLimit = 7.0f;
inline constexpr float kClampAlpha = 1.702f;

// The least bf16 number beyond the limit. Pre-activations between the two are saved as this one: rounding
// must not carry one over the limit, where the derivative jumps.
inline constexpr float kNextBeyondLimit = kClampLimit + 0x1p-5f;

}  // namespace evenkeel::internal
