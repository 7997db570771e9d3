// CUDA runtime calls that throw on failure. Only for sources in folders named cuda: this header uses CUDA's
// types and is not installed.
#pragma once

#include <cuda_runtime_api.h>

#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::cuda {

// On failure clears CUDA's error and throws DeviceError with the thread's current GPU.
void check(cudaError_t result, const char* call);

// check(call()): EVENKEEL_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, stream)
#define EVENKEEL_CUDA_CALL(function, ...) ::evenkeel::cuda::check(function(__VA_ARGS__), #function)

// Use after a kernel launch: throws if the launch failed.
#define EVENKEEL_CUDA_CHECK_LAUNCH(kernel) ::evenkeel::cuda::check(cudaGetLastError(), kernel)

// CudaStream::native() with its CUDA type.
inline cudaStream_t native(CudaStream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// Looks up a driver function at run time. Nothing links with the driver, so programs also start on machines
// without one. Throws Unsupported if the driver lacks the function.
void* find_driver_function(const char* name, unsigned least_cuda_version);

template <class Function>
Function driver_function(const char* name, unsigned least_cuda_version) {
  return reinterpret_cast<Function>(find_driver_function(name, least_cuda_version));
}

}  // namespace evenkeel::cuda
