// Grid sizes that do not depend on the routing: the device reads how much work there is, and the blocks
// stride over it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarpsInBlock = kThreads / 32;
// Several blocks per multiprocessor even on the largest GPUs.
inline constexpr std::int64_t kMostBlocks = 2048;

// Blocks for `items` items, `each` per block.
inline unsigned blocks_for(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>(std::clamp((items + each - 1) / each, std::int64_t{1}, kMostBlocks));
}

// Calls f(i) for i in [0, n), divided among all threads of the grid.
template <class F>
__device__ void for_grid(std::int64_t n, const F& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) f(i);
}

// Calls f(i) for i in [0, n), each with all lanes of one warp.
template <class F>
__device__ void for_warps(std::int64_t n, const F& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * (blockDim.x / 32);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; i < n; i += stride)
    f(i);
}

}  // namespace evenkeel::cuda
