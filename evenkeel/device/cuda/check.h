// Invariants of code that runs on either side: as EVENKEEL_CHECK on the host; on a device the kernel
// ends, and the next call that waits for it throws.
#pragma once

#include "evenkeel/base/check.h"

#if defined(__CUDA_ARCH__)
#define EVENKEEL_DEVICE_CHECK(condition) \
  do {                                   \
    if (!(condition)) __trap();          \
  } while (false)
#else
#define EVENKEEL_DEVICE_CHECK(condition) EVENKEEL_CHECK(condition)
#endif
