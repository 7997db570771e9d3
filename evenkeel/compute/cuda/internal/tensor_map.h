// A matrix's shape and place as bulk tensor copies want it: 128 bytes that only the driver can make, and the
// device can point elsewhere.
#pragma once

#include <cstdint>

namespace evenkeel::cuda {

struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

// A map of a row-major bf16 matrix, copied in boxes of boxes.h; zeros are read beyond the matrix. `address`
// is any of the device's, a multiple of 16. Throws Unsupported where the driver cannot make it.
TensorMap make_matrix_map(const void* address, std::int64_t rows, std::int64_t columns);

}  // namespace evenkeel::cuda
