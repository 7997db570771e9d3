// The parts that every product here shares: a little of oneDNN, and how much is computed at once.
#pragma once

#include <oneapi/dnnl/dnnl_version.h>

#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/data_type.h"

namespace evenkeel::internal {

// The most rows that one product multiplies; and where backward computes again what was not saved, which is
// done for want of space, so many, since a tile's rows take memory.
inline constexpr std::int64_t kTileRows = 384;
inline constexpr std::int64_t kAgainTileRows = 192;

// In forward: rows that leave the second-level cache cost little on one busy core, but several per cent where
// other cores are busy with what lies behind it.
constexpr std::int64_t forward_tile_rows(DataType type) {
  return type == DataType::f32 ? kTileRows / 2 : kTileRows;
}

// Rows come in steps of what AMX multiplies at once.
inline constexpr std::int64_t kVectorRows = 16;
constexpr std::int64_t whole_vector_rows(std::int64_t rows) {
  return round_up(rows, kVectorRows);
}

inline dnnl::memory::data_type dnnl_type(DataType type) {
  return type == DataType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// In which products of rows of a type are made. For CPUs without AVX-512 oneDNN has none in bf16: its numbers
// are widened, and their products and sums are f32, as they are elsewhere.
DataType product_type(DataType type);

const dnnl::engine& cpu_engine();
// A stream of the calling thread.
dnnl::stream& cpu_stream();

// To be called before oneDNN makes anything. Where it is given no memory for what it compiles, it goes on and
// writes to address 0 (seen in 2.6): so it is not asked where it might not be. Throws Unsupported then.
inline constexpr std::int64_t kProductMemory = std::int64_t{32} << 20;
inline constexpr std::int64_t kReorderMemory = std::int64_t{8} << 20;
void require_memory_to_compile(std::int64_t bytes);

// C = A B. oneDNN 2 wants the operation described first, oneDNN 3 takes its operands.
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

// A product whose operands have been described to oneDNN, and compiled.
struct Product {
  Product(const dnnl::memory::desc& a, const dnnl::memory::desc& b, const dnnl::memory::desc& c,
          const dnnl::primitive_attr& attributes);
  // On the calling thread alone.
  void run(const void* a, const void* b, float* c, std::byte* scratch) const;
  std::int64_t scratch_bytes() const { return static_cast<std::int64_t>(scratch_.get_size()); }

 private:
  dnnl::memory::desc a_, b_, c_, scratch_;
  dnnl::matmul matmul_;
};

// While it lives, oneDNN calls of this thread stay on this thread: no OpenMP workers behind a rank's back.
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
