// The accumulators of mma and wgmma, and how they become eight neighbouring columns for each lane.
//
// Of a block of 8 columns, lane L of a warp holds rows L / 4 and L / 4 + 8, columns 2 (L % 4) and the next:
// four numbers, (row half, column parity) in the order (0, 0), (0, 1), (1, 0), (1, 1). Of four blocks beside
// each other, a segment of 32 columns, the four lanes of a quad hold all of two rows: each gives three lanes
// of its quad what these lack, and then has block L % 4 of both rows.
#pragma once

#include "evenkeel/compute/cuda/internal/eight.h"
#include "evenkeel/compute/cuda/internal/inline.h"

namespace evenkeel::cuda {

inline constexpr int kQuad = 4;
inline constexpr int kBlockColumns = 8;
inline constexpr int kSegmentColumns = kQuad * kBlockColumns;
inline constexpr int kBlockNumbers = 4;                        // of a lane
inline constexpr int kSegmentNumbers = kQuad * kBlockNumbers;  // of a lane

// A 4 x 4 transposition over a quad is two rounds, with the lane one and two away. In each a lane sends two
// of its numbers and puts what it gets in their places.
struct QuadRound {
  int mask;    // 1, 2
  bool upper;  // this lane's number has the bit of the mask

  // Pair 0 and 1 of the numbers: low and low | mask.
  EVENKEEL_HOST_DEVICE constexpr int low(int pair) const { return mask == 1 ? 2 * pair : pair; }
};

// exchange(value, mask) gives the value of the lane whose number differs in the mask's bit. Written without
// an index that depends on the lane, so that the numbers stay in registers.
template <int kMask, class Exchange>
EVENKEEL_ALWAYS_INLINE void transpose_round(float (&numbers)[kQuad], int lane, const Exchange& exchange) {
  const QuadRound round{kMask, (lane & kMask) != 0};
  EVENKEEL_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    float& low = numbers[round.low(pair)];
    float& high = numbers[round.low(pair) | kMask];
    const float got = exchange(round.upper ? low : high, kMask);
    low = round.upper ? got : low;
    high = round.upper ? high : got;
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
