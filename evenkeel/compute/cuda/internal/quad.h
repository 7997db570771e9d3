// The accumulators of mma and wgmma, and how they become eight neighbouring columns for each lane.
//
// Of a block of 8 columns, lane L of a warp holds rows L / 4 and L / 4 + 8, columns 2 (L % 4) and the next:
// four numbers, (row half, column parity) in the order (0, 0), (0, 1), (1, 0), (1, 1). Of four blocks beside
// each other, a segment of 32 columns, the four lanes of a quad hold all of two rows: each gives three lanes
// of its quad what these lack, and then has block L % 4 of both rows.
#pragma once

#include "evenkeel/base/host_device.h"
#include "evenkeel/compute/cuda/internal/eight.h"

namespace evenkeel::cuda {

inline constexpr int kQuad = 4;
inline constexpr int kBlockColumns = 8;
inline constexpr int kSegmentColumns = kQuad * kBlockColumns;
inline constexpr int kBlockNumbers = 4;                        // of a lane
inline constexpr int kSegmentNumbers = kQuad * kBlockNumbers;  // of a lane

// A round of a 4 x 4 transposition over a quad, which is two: with the lane one and two away, kMask. In each
// a lane sends two of its numbers and puts what it gets in their places. exchange(value, mask) gives the
// value of the lane whose number differs in the mask's bit. Written without an index that depends on the
// lane, so that the numbers stay in registers.
template <int kMask, class Exchange>
EVENKEEL_ALWAYS_INLINE void transpose_round(float (&numbers)[kQuad], int lane, const Exchange& exchange) {
  const bool upper = (lane & kMask) != 0;  // this lane's number has the bit of the mask
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

// Eight columns of a lane out of the quad's transposed numbers: from lane p come columns 2 p (even) and 2 p +
// 1 (odd).
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
