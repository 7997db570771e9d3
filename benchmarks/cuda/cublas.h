// The part of cuBLAS that the benchmarks need, loaded at run time, so that they build without its headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "evenkeel/base/data_type.h"

namespace evenkeel::benchmark {

class Cublas {
 public:
  // Returns null if no libcublas can be loaded; `why` then says the reason. EVENKEEL_CUBLAS names a file to
  // load instead of the usual ones.
  static std::unique_ptr<Cublas> load(std::string& why);
  ~Cublas();

  // out [rows, columns] = a [rows, depth] . w [columns, depth]^T, row-major, f32 sums.
  void multiply(const bf16* a, const bf16* w, bf16* out, std::int64_t rows, std::int64_t columns,
                std::int64_t depth, cudaStream_t stream);

 private:
  Cublas() = default;
  void* library_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace evenkeel::benchmark
