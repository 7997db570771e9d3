// Arithmetic on bytes, in integers so wide that no shape overflows them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel::internal {

__extension__ using Wide = __int128;

inline std::int64_t narrow(Wide bytes) {
  return static_cast<std::int64_t>(std::min(bytes, Wide{most_bytes}));
}
inline Wide divide_up(Wide dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}
// `bytes` rounded up to a multiple of `granule`, or unchanged if `granule` is 0.
inline Wide round_up(Wide bytes, std::int64_t granule) {
  return granule == 0 ? bytes : divide_up(bytes, granule) * granule;
}

}  // namespace evenkeel::internal
