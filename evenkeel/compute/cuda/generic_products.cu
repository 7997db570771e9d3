// The kernels of all products, for any GPU since compute capability 8.0.
#include "evenkeel/compute/cuda/internal/launch.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda::generic {

void prepare() {
#define EVENKEEL_PREPARE(...)                                            \
  EVENKEEL_CUDA_CALL(cudaFuncSetAttribute, multiply_groups<__VA_ARGS__>, \
                     cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  EVENKEEL_FOR_EACH_PRODUCT(EVENKEEL_PREPARE)
#undef EVENKEEL_PREPARE
}

template <class Product>
void launch(const Call<Product>& call, const Chip& chip, cudaStream_t stream) {
  // Two blocks per multiprocessor. If only one fits its shared memory, the second waits, which costs nothing.
  multiply_groups<<<static_cast<unsigned>(2 * chip.multiprocessors), kThreads, kSharedBytes, stream>>>(call);
  EVENKEEL_CUDA_CHECK_LAUNCH("a grouped product");
}

#define EVENKEEL_LAUNCH(...) template void launch(const Call<__VA_ARGS__>&, const Chip&, cudaStream_t);
EVENKEEL_FOR_EACH_PRODUCT(EVENKEEL_LAUNCH)
#undef EVENKEEL_LAUNCH

}  // namespace evenkeel::cuda::generic
