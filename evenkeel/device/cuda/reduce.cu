// CudaStream::reduce(): combines the values of several ranks in rank order for every element, so that all
// ranks get the same bits.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/device/cuda/stream.h"

namespace evenkeel {

namespace {

template <class Value>
__global__ void reduce_parts(const Value* values, int parts, std::int64_t n, Reduction reduction,
                             Value* reduced) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    Value total = values[i];
    for (int part = 1; part < parts; ++part) total = combined(total, values[part * n + i], reduction);
    reduced[i] = total;
  }
}

template <class Value>
void launch(const void* values, int parts, std::int64_t n, Reduction reduction, void* reduced, void* stream) {
  constexpr unsigned kThreads = 128;
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>((n + kThreads - 1) / kThreads, 1, 1024));
  reduce_parts<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const Value*>(values), parts, n, reduction, static_cast<Value*>(reduced));
  EVENKEEL_CUDA_CHECK_LAUNCH("reduce_parts");
}

}  // namespace

void CudaStream::reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                        void* reduced) {
  make_current();
  if (type == ValueType::int64)
    launch<std::int64_t>(values, parts, n, reduction, reduced, stream_);
  else
    launch<double>(values, parts, n, reduction, reduced, stream_);
}

}  // namespace evenkeel
