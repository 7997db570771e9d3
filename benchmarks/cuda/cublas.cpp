#include "benchmarks/cuda/cublas.h"

#include <dlfcn.h>
#include <library_types.h>

#include <cstdlib>
#include <stdexcept>

namespace evenkeel::benchmark {

namespace {

// From cublas_api.h.
constexpr int kPlain = 0, kTransposed = 1;
constexpr int kComputeF32 = 68;
constexpr int kDefaultAlgorithm = -1;
using Create = int(void**);
using Destroy = int(void*);
using SetStream = int(void*, cudaStream_t);
using GemmEx = int(void*, int, int, int, int, int, const void*, const void*, cudaDataType_t, int, const void*,
                   cudaDataType_t, int, const void*, void*, cudaDataType_t, int, int, int);

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void require(int status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string(what) + " failed with status " + std::to_string(status));
}

void* open_library() {
  if (const char* named = std::getenv("EVENKEEL_CUBLAS")) return dlopen(named, RTLD_NOW);
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  return nullptr;
}

}  // namespace

std::unique_ptr<Cublas> Cublas::load(std::string& why) {
  void* const library = open_library();
  if (library == nullptr) {
    const char* const said = dlerror();
    why = said == nullptr ? "libcublas was not found" : said;
    return nullptr;
  }
  std::unique_ptr<Cublas> cublas(new Cublas);
  cublas->library_ = library;
  require(find<Create>(library, "cublasCreate_v2")(&cublas->handle_), "cublasCreate");
  return cublas;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) find<Destroy>(library_, "cublasDestroy_v2")(handle_);
}

// Row-major out = a . w^T is column-major out^T = w . a^T.
void Cublas::multiply(const bf16* a, const bf16* w, bf16* out, std::int64_t rows, std::int64_t columns,
                      std::int64_t depth, cudaStream_t stream) {
  static auto* const set_stream = find<SetStream>(library_, "cublasSetStream_v2");
  static auto* const gemm = find<GemmEx>(library_, "cublasGemmEx");
  const float one = 1, zero = 0;
  const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(depth);
  require(set_stream(handle_, stream), "cublasSetStream");
  require(gemm(handle_, kTransposed, kPlain, m, n, k, &one, w, CUDA_R_16BF, k, a, CUDA_R_16BF, k, &zero, out,
               CUDA_R_16BF, m, kComputeF32, kDefaultAlgorithm),
          "cublasGemmEx");
}

}  // namespace evenkeel::benchmark
