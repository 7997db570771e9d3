#include "evenkeel/compute/cuda/internal/tensor_map.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <bit>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cuda/internal/boxes.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));

TensorMap make_matrix_map(const void* address, std::int64_t rows, std::int64_t columns) {
  constexpr unsigned kSince = 12000;
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", kSince);
  const cuuint64_t size[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[] = {static_cast<cuuint64_t>(columns) * sizeof(bf16)};
  const cuuint32_t box[] = {kBoxColumns, kDepth};
  const cuuint32_t step[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(address), size, row_bytes, box,
             step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Unsupported(fmt::format("the driver cannot make a tensor map of {} x {} bf16 numbers (error {})",
                                  rows, columns, static_cast<int>(result)));
  return std::bit_cast<TensorMap>(map);
}

}  // namespace evenkeel::cuda
