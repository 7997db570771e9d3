// A matrix's shape and address for bulk tensor copies: 128 bytes that only the driver can create. The device
// can replace the address.
#pragma once

#include <cstdint>

namespace evenkeel::cuda {

struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

// Makes a map of a row-major bf16 matrix, which is copied in the boxes of boxes.h; reads beyond the matrix
// give zeros. `address` is any device address that is a multiple of 16. Throws Unsupported if the driver
// cannot make the map.
TensorMap make_matrix_map(const void* address, std::int64_t rows, std::int64_t columns);

}  // namespace evenkeel::cuda
