// Values of several ranks into one, in rank order for every element, so that all ranks get the same bits.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "evenkeel/device/cuda/internal/reduce.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

namespace {

template <Reduction kReduction, class Value>
__device__ Value combined(Value a, Value b) {
  if constexpr (kReduction == Reduction::min) return b < a ? b : a;
  if constexpr (kReduction == Reduction::max) return a < b ? b : a;
  return a + b;
}

template <Reduction kReduction, class Value>
__global__ void reduce_parts(const Value* values, int parts, std::int64_t n, Value* reduced) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    Value total = values[i];
    for (int part = 1; part < parts; ++part) total = combined<kReduction>(total, values[part * n + i]);
    reduced[i] = total;
  }
}

template <Reduction kReduction, class Value>
void launch(const void* values, int parts, std::int64_t n, void* reduced, void* stream) {
  constexpr unsigned kThreads = 128;
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>((n + kThreads - 1) / kThreads, 1, 1024));
  reduce_parts<kReduction><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const Value*>(values), parts, n, static_cast<Value*>(reduced));
  EVENKEEL_CUDA_CHECK_LAUNCH("reduce_parts");
}

// Whole numbers wrap where they are added, and keep their sign where they are compared.
template <class Value, class Sum>
void launch_for(const void* values, int parts, std::int64_t n, Reduction reduction, void* reduced,
                void* stream) {
  switch (reduction) {
    case Reduction::min:
      return launch<Reduction::min, Value>(values, parts, n, reduced, stream);
    case Reduction::max:
      return launch<Reduction::max, Value>(values, parts, n, reduced, stream);
    case Reduction::sum:
      return launch<Reduction::sum, Sum>(values, parts, n, reduced, stream);
  }
}

}  // namespace

void launch_reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                   void* reduced, void* stream) {
  if (type == ValueType::int64) {
    launch_for<std::int64_t, std::uint64_t>(values, parts, n, reduction, reduced, stream);
  } else {
    launch_for<double, double>(values, parts, n, reduction, reduced, stream);
  }
}

}  // namespace evenkeel::cuda
