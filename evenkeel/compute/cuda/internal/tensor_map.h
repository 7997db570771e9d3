// A matrix's shape and place as bulk tensor copies want it: 128 bytes that only the driver can make, and the
// device can point elsewhere.
#pragma once

#include <cstdint>

namespace evenkeel::cuda {

struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

}  // namespace evenkeel::cuda
