#include "evenkeel/device/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

namespace {

struct Found {
  int count = 0;
  std::string why;
};

// Counts GPUs up to the first that is too old, so that our indices equal CUDA's.
Found find() {
  Found found;
  const cudaError_t result = cudaGetDeviceCount(&found.count);
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {0, fmt::format("no NVIDIA GPU can be used: {}", cudaGetErrorString(result))};
  }
  for (int index = 0; index < found.count; ++index) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess || major < 8)
      return {index, index > 0 ? "" : "found no NVIDIA GPU of compute capability 8.0 or newer"};
  }
  return found;
}

const Found& gpus() {
  static const Found found = find();
  return found;
}

}  // namespace

int gpu_count() {
  return gpus().count;
}

std::string why_no_gpu() {
  return gpus().why;
}

void require_gpu(int index) {
  if (gpu_count() == 0) throw Unsupported(why_no_gpu());
  if (index < 0 || index >= gpu_count())
    throw Unsupported(fmt::format("there is no GPU {}; usable GPUs are 0..{}", index, gpu_count() - 1));
}

bool open_memory(int owner, int reader) {
  require_gpu(owner);
  require_gpu(reader);
  if (owner == reader) return true;
  int can = 0;
  EVENKEEL_CUDA_CALL(cudaDeviceCanAccessPeer, &can, reader, owner);
  if (can == 0) return false;
  EVENKEEL_CUDA_CALL(cudaSetDevice, reader);
  const cudaError_t result = cudaDeviceEnablePeerAccess(owner, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return true;
  }
  check(result, "cudaDeviceEnablePeerAccess");
  return true;
}

void await_gpu(int index) noexcept {
  static_cast<void>(cudaSetDevice(index));
  static_cast<void>(cudaDeviceSynchronize());
}

}  // namespace evenkeel::cuda
