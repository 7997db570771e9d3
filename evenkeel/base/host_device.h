// Macros for code that is compiled for the host and, by nvcc, for the device as well.
#pragma once

#include "evenkeel/base/check.h"

#if defined(__CUDACC__)
#define EVENKEEL_HOST_DEVICE __host__ __device__
// For code that keeps arrays in registers: without inlining and unrolling, the compiler would put the arrays
// into memory.
#define EVENKEEL_ALWAYS_INLINE EVENKEEL_HOST_DEVICE __forceinline__
#else
#define EVENKEEL_HOST_DEVICE
#define EVENKEEL_ALWAYS_INLINE inline
#endif

// Loop unrolling for the device compiler; the host compiler does not know the pragma. EVENKEEL_DEVICE_CHECK
// is EVENKEEL_CHECK on the host. On a device, a broken invariant ends the kernel, and the next call that
// waits for the kernel throws.
#if defined(__CUDA_ARCH__)
#define EVENKEEL_PRAGMA(text) _Pragma(#text)
#define EVENKEEL_UNROLL EVENKEEL_PRAGMA(unroll)
#define EVENKEEL_UNROLL_BY(times) EVENKEEL_PRAGMA(unroll times)
#define EVENKEEL_NO_UNROLL EVENKEEL_UNROLL_BY(1)
#define EVENKEEL_DEVICE_CHECK(condition) \
  do {                                   \
    if (!(condition)) __trap();          \
  } while (false)
#else
#define EVENKEEL_UNROLL
#define EVENKEEL_UNROLL_BY(times)
#define EVENKEEL_NO_UNROLL
#define EVENKEEL_DEVICE_CHECK(condition) EVENKEEL_CHECK(condition)
#endif
