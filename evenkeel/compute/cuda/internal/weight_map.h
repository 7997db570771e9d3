// The driver's part of a tensor map: what a matrix looks like, whichever it is.
#pragma once

#include <cstdint>

#include "evenkeel/compute/cuda/internal/tensor_map.h"

namespace evenkeel::cuda {

// A map of a row-major bf16 matrix, copied in boxes of boxes.h; zeros are read beyond the matrix. `address`
// is any of the device's, a multiple of 16. Throws Unsupported where the driver cannot make it.
TensorMap make_matrix_map(const void* address, std::int64_t rows, std::int64_t columns);

}  // namespace evenkeel::cuda
