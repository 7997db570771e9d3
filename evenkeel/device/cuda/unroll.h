// How often a device's compiler repeats a loop's body; the host's does not know the pragma.
#pragma once

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
