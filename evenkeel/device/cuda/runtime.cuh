// Calls of the CUDA runtime that throw where they fail. For sources of the folders named cuda: it names
// CUDA's types, and is not installed.
#pragma once

#include <cuda_runtime_api.h>

#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::cuda {

// Throws DeviceError, naming the thread's current GPU, and forgets the error.
void check(cudaError_t result, const char* call);

// check(call()): EVENKEEL_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, stream)
#define EVENKEEL_CUDA_CALL(function, ...) ::evenkeel::cuda::check(function(__VA_ARGS__), #function)

// After a kernel's launch: whether it could be launched.
#define EVENKEEL_CUDA_CHECK_LAUNCH(kernel) ::evenkeel::cuda::check(cudaGetLastError(), kernel)

// As CudaStream::native().
inline cudaStream_t native(CudaStream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// A function of the driver, found when it is first wanted: nothing here links with the driver, so that
// programs start on machines without one. Throws Unsupported where the driver lacks it.
void* find_driver_function(const char* name, unsigned least_cuda_version);

template <class Function>
Function driver_function(const char* name, unsigned least_cuda_version) {
  return reinterpret_cast<Function>(find_driver_function(name, least_cuda_version));
}

}  // namespace evenkeel::cuda
