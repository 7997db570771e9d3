// The little of oneDNN that every product here shares.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "evenkeel/base/data_type.h"

namespace evenkeel::internal {

inline dnnl::memory::data_type dnnl_type(DataType type) {
  return type == DataType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

const dnnl::engine& cpu_engine();
// A stream of the calling thread.
dnnl::stream& cpu_stream();

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
