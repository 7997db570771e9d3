// How often a device's compiler repeats a loop's body; hosts decide for themselves.
#pragma once

#if defined(__CUDA_ARCH__)
#define EVENKEEL_PRAGMA(text) _Pragma(#text)
#define EVENKEEL_UNROLL(times) EVENKEEL_PRAGMA(unroll times)
#else
#define EVENKEEL_UNROLL(times)
#endif
