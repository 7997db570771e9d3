#include "evenkeel/compute/cpu/internal/dnnl.h"

#include <omp.h>

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

OneThread::OneThread() : before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
OneThread::~OneThread() {
  omp_set_num_threads(before_);
}

}  // namespace evenkeel::internal
