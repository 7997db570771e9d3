// The kernels of all products for compute capability 9.0, and the tensor maps through which they read
// weights.
#include "evenkeel/compute/cuda/internal/launch.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda::hopper {

namespace {

// One warp per map: copies the driver's map, points it at the matrix, and makes it visible to the copy
// engine.
__global__ void point_maps(int num_groups, const ExpertWeights* weights,
                           const __grid_constant__ TensorMap gate_up, const __grid_constant__ TensorMap down,
                           TensorMap* maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ TensorMap map;
  const int number = static_cast<int>(blockIdx.x);
  const bool of_down = number >= num_groups;
  const ExpertWeights& own = weights[of_down ? number - num_groups : number];
  const void* const matrix = of_down ? own.down : own.gate_up;
  if (threadIdx.x < 16) map.opaque[threadIdx.x] = (of_down ? down : gate_up).opaque[threadIdx.x];
  __syncwarp();
  const std::uint32_t here = shared_address(&map);
  if (threadIdx.x == 0)
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(here),
                 "l"(matrix)
                 : "memory");
  __syncwarp();
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
      "128;" ::"l"(maps + number),
      "r"(here)
      : "memory");
#endif
}

}  // namespace

void prepare() {
#define EVENKEEL_PREPARE(...)                                            \
  EVENKEEL_CUDA_CALL(cudaFuncSetAttribute, multiply_groups<__VA_ARGS__>, \
                     cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  EVENKEEL_FOR_EACH_PRODUCT(EVENKEEL_PREPARE)
#undef EVENKEEL_PREPARE
}

void launch_maps(int num_groups, const ExpertWeights* weights, const TensorMap& gate_up,
                 const TensorMap& down, TensorMap* maps, cudaStream_t stream) {
  if (num_groups == 0) return;
  point_maps<<<static_cast<unsigned>(2 * num_groups), 32, 0, stream>>>(num_groups, weights, gate_up, down,
                                                                       maps);
  EVENKEEL_CUDA_CHECK_LAUNCH("tensor maps");
}

template <class Product>
void launch(const Call<Product>& call, const Chip& chip, cudaStream_t stream) {
  multiply_groups<<<static_cast<unsigned>(chip.multiprocessors), kThreads, kSharedBytes, stream>>>(call);
  EVENKEEL_CUDA_CHECK_LAUNCH("a grouped product");
}

#define EVENKEEL_LAUNCH(...) template void launch(const Call<__VA_ARGS__>&, const Chip&, cudaStream_t);
EVENKEEL_FOR_EACH_PRODUCT(EVENKEEL_LAUNCH)
#undef EVENKEEL_LAUNCH

}  // namespace evenkeel::cuda::hopper
