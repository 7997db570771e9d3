// The accumulators of mma and wgmma, and how lanes rearrange them into eight consecutive columns each.
//
// In a block of 8 columns, lane L of a warp holds four numbers: columns 2 (L % 4) and 2 (L % 4) + 1 of row
// L / 4, then the same columns of row L / 4 + 8. In four adjacent blocks (a segment of 32 columns) the four
// lanes of a quad hold two complete rows. The lanes exchange numbers within the quad, so that lane L then
// holds block L % 4 of both rows.
#pragma once

#include "evenkeel/base/host_device.h"
#include "evenkeel/compute/cuda/internal/eight.h"

namespace evenkeel::cuda {

inline constexpr int kQuad = 4;
inline constexpr int kBlockColumns = 8;
inline constexpr int kSegmentColumns = kQuad * kBlockColumns;
inline constexpr int kBlockNumbers = 4;                        // per lane
inline constexpr int kSegmentNumbers = kQuad * kBlockNumbers;  // per lane

// One of the two rounds of a 4 x 4 transposition over a quad. Lanes exchange numbers with the lane 1 away in
// the first round (kMask = 1) and 2 away in the second. In each round a lane sends two of its numbers and
// stores the received ones in their places.
// exchange(value, mask) returns the value of the lane whose index differs in the mask's bit. No array index
// depends on the lane, so that the numbers stay in registers.
template <int kMask, class Exchange>
EVENKEEL_ALWAYS_INLINE void transpose_round(float (&numbers)[kQuad], int lane, const Exchange& exchange) {
  const bool upper = (lane & kMask) != 0;  // the lane's index has the mask's bit
  EVENKEEL_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    const int first = kMask == 1 ? 2 * pair : pair;
    float& low = numbers[first];
    float& high = numbers[first | kMask];
    const float got = exchange(upper ? low : high, kMask);
    low = upper ? got : low;
    high = upper ? high : got;
  }
}

// Builds a lane's eight columns from the transposed numbers: lane p of the quad provides columns 2 p (even)
// and 2 p + 1 (odd).
EVENKEEL_ALWAYS_INLINE Eight interleave(const float (&even)[kQuad], const float (&odd)[kQuad]) {
  Eight columns;
  EVENKEEL_UNROLL
  for (int p = 0; p < kQuad; ++p) {
    columns.at[2 * p] = even[p];
    columns.at[2 * p + 1] = odd[p];
  }
  return columns;
}

}  // namespace evenkeel::cuda
