// What all products here share: oneDNN helpers and tile sizes.
#pragma once

#include <oneapi/dnnl/dnnl_version.h>

#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/data_type.h"

namespace evenkeel::internal {

// The most rows of one product. If backward recomputes what was not saved, memory is scarce, so its tiles are
// smaller (kRecomputeTileRows).
inline constexpr std::int64_t kTileRows = 384;
inline constexpr std::int64_t kRecomputeTileRows = 192;

// Tile rows in forward. Rows that do not fit the L2 cache cost little while one core is busy, but several per
// cent while other cores use the L3 cache and memory.
constexpr std::int64_t forward_tile_rows(DataType type) {
  return type == DataType::f32 ? kTileRows / 2 : kTileRows;
}

// Row counts are padded to multiples of the rows that AMX multiplies at once.
inline constexpr std::int64_t kVectorRows = 16;
constexpr std::int64_t whole_vector_rows(std::int64_t rows) {
  return round_up(rows, kVectorRows);
}

inline dnnl::memory::data_type dnnl_type(DataType type) {
  return type == DataType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// The type in which rows of `type` are multiplied. oneDNN has no bf16 products for CPUs without AVX-512: bf16
// is widened to f32 there. Products and sums are f32 on all CPUs.
DataType product_type(DataType type);

const dnnl::engine& cpu_engine();
// The calling thread's stream.
dnnl::stream& cpu_stream();

// Call before oneDNN compiles anything. If oneDNN gets no memory for compiled code, it writes to address 0
// (seen in 2.6). So this throws Unsupported if memory might not be available.
inline constexpr std::int64_t kProductMemory = std::int64_t{32} << 20;
inline constexpr std::int64_t kReorderMemory = std::int64_t{8} << 20;
void require_memory_to_compile(std::int64_t bytes);

// C = A B. oneDNN 2 needs an operation descriptor first; oneDNN 3 takes the operands directly.
inline dnnl::matmul::primitive_desc product_of(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                               const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
  require_memory_to_compile(kProductMemory);
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, cpu_engine()};
#endif
}

// A compiled oneDNN product for given operand descriptors.
struct Product {
  Product(const dnnl::memory::desc& a, const dnnl::memory::desc& b, const dnnl::memory::desc& c,
          const dnnl::primitive_attr& attributes);
  // Runs only on the calling thread.
  void run(const void* a, const void* b, float* c, std::byte* scratch) const;
  std::int64_t scratch_bytes() const { return static_cast<std::int64_t>(scratch_.get_size()); }

 private:
  dnnl::memory::desc a_, b_, c_, scratch_;
  dnnl::matmul matmul_;
};

// While this object exists, oneDNN calls of this thread run only on this thread and start no OpenMP workers.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

inline dnnl::memory view(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
}

}  // namespace evenkeel::internal
