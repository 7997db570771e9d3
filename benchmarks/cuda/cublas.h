// cuBLAS as far as the benchmarks need it, found when they run: they build where its headers are not.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "evenkeel/base/data_type.h"

namespace evenkeel::benchmark {

class Cublas {
 public:
  // Null where no libcublas can be loaded; `why` says so then. EVENKEEL_CUBLAS names another file than the
  // usual ones.
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
