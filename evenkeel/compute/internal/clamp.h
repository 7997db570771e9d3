// The constants of clamped_swiglu, as in gpt-oss.
#pragma once

namespace evenkeel::internal {

inline constexpr float kClampLimit = 7.0f;
inline constexpr float kClampAlpha = 1.702f;

// The smallest bf16 number beyond the limit. Pre-activations between the limit and this number are saved as
// this number, because rounding must not move them across the limit, where the derivative jumps.
inline constexpr float kNextBeyondLimit = kClampLimit + 0x1p-5f;

}  // namespace evenkeel::internal
