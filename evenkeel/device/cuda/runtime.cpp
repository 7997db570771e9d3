#include "evenkeel/device/cuda/runtime.cuh"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel::cuda {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  int gpu = -1;
  static_cast<void>(cudaGetDevice(&gpu));
  throw DeviceError(fmt::format("GPU {}", gpu), call,
                    fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result)));
}

void* find_driver_function(const char* name, unsigned least_cuda_version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(name, &function, least_cuda_version, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess && function != nullptr) return function;
  static_cast<void>(cudaGetLastError());
  throw Unsupported(fmt::format("the NVIDIA driver lacks {} (CUDA {}.{}): {}", name,
                                least_cuda_version / 1000, least_cuda_version % 1000 / 10,
                                result == cudaSuccess ? "not found" : cudaGetErrorString(result)));
}

}  // namespace evenkeel::cuda
