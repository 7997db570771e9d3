#include "evenkeel/compute/cpu/internal/dnnl.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/machine_memory.h"

namespace evenkeel::internal {

namespace {

bool multiplies_bf16() {
  using dnnl::memory;
  const memory::desc rows({16, 16}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc result({16, 16}, memory::data_type::f32, memory::format_tag::ab);
  try {
    product_of(rows, rows, result, {});
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace

DataType product_type(DataType type) {
  static const bool has_bf16 = multiplies_bf16();
  return has_bf16 ? type : DataType::f32;
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

// Maps the memory and unmaps it again. `bytes` is several times what oneDNN needs, since other threads may
// allocate meanwhile.
void require_memory_to_compile(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* there = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (there == MAP_FAILED) {
    const FreeMemory free = free_memory();
    throw Unsupported(
        fmt::format("not enough memory to compile the products of a layer: {} are needed, but {} {}",
                    format_bytes(bytes), free.because, format_bytes(free.bytes)));
  }
  munmap(there, size);
}

Product::Product(const dnnl::memory::desc& a, const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                 const dnnl::primitive_attr& attributes)
    : a_(a), b_(b), c_(c) {
  const dnnl::matmul::primitive_desc made = product_of(a, b, c, attributes);
  scratch_ = made.scratchpad_desc();
  matmul_ = dnnl::matmul(made);
}

void Product::run(const void* a, const void* b, float* c, std::byte* scratch) const {
  const OneThread alone;
  matmul_.execute(cpu_stream(), {{DNNL_ARG_SRC, view(a_, a)},
                                 {DNNL_ARG_WEIGHTS, view(b_, b)},
                                 {DNNL_ARG_DST, view(c_, c)},
                                 {DNNL_ARG_SCRATCHPAD, view(scratch_, scratch)}});
}

OneThread::OneThread() : before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
OneThread::~OneThread() {
  omp_set_num_threads(before_);
}

}  // namespace evenkeel::internal
