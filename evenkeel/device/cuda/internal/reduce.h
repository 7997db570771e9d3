// The kernel behind CudaStream::reduce().
#pragma once

#include <cstdint>

#include "evenkeel/device/reduction.h"

namespace evenkeel::cuda {

void launch_reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                   void* reduced, void* stream);

}  // namespace evenkeel::cuda
