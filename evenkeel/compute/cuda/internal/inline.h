// For code that works on registers: a function that is not inlined, or a loop that is not unrolled, would put
// its array of sums into memory.
#pragma once

#include "evenkeel/device/cuda/team.h"

#if defined(__CUDACC__)
#define EVENKEEL_ALWAYS_INLINE EVENKEEL_HOST_DEVICE __forceinline__
#else
#define EVENKEEL_ALWAYS_INLINE inline
#endif

// The host's compiler does not know the pragma.
#if defined(__CUDA_ARCH__)
#define EVENKEEL_PRAGMA(text) _Pragma(#text)
#define EVENKEEL_UNROLL EVENKEEL_PRAGMA(unroll)
#define EVENKEEL_UNROLL_BY(times) EVENKEEL_PRAGMA(unroll times)
#define EVENKEEL_NO_UNROLL EVENKEEL_UNROLL_BY(1)
#else
#define EVENKEEL_UNROLL
#define EVENKEEL_UNROLL_BY(times)
#define EVENKEEL_NO_UNROLL
#endif
