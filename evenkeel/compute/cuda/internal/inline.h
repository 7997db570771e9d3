// For code that works on registers: a function that is not inlined, or a loop that is not unrolled, would put
// its array of sums into memory.
#pragma once

#include "evenkeel/device/cuda/team.h"
#include "evenkeel/device/cuda/unroll.h"

#if defined(__CUDACC__)
#define EVENKEEL_ALWAYS_INLINE EVENKEEL_HOST_DEVICE __forceinline__
#else
#define EVENKEEL_ALWAYS_INLINE inline
#endif
