// Adds to an integer that other lanes add to as well; the sum does not depend on their order.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

EVENKEEL_HOST_DEVICE inline void add(std::int32_t* to, std::int32_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(to, value);
#else
  *to += value;
#endif
}

}  // namespace evenkeel::cuda
