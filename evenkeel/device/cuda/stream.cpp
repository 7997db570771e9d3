#include "evenkeel/device/cuda/stream.h"

#include <algorithm>

#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel {

namespace {

cudaStream_t native_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent() { EVENKEEL_CUDA_CALL(cudaEventCreateWithFlags, &event_, cudaEventDisableTiming); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event_)); }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t native_of(const DeviceEvent& event) {
  return static_cast<const CudaEvent&>(event).native();
}

}  // namespace

CudaStream::CudaStream(int gpu) : gpu_(gpu), owned_(true) {
  cuda::require_gpu(gpu);
  make_current();
  cudaStream_t stream = nullptr;
  EVENKEEL_CUDA_CALL(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  stream_ = stream;
}

CudaStream::CudaStream(int gpu, void* native) : gpu_(gpu), stream_(native), owned_(false) {
  cuda::require_gpu(gpu);
}

// Device errors are ignored here: they were thrown earlier, or the next call to the device throws them.
CudaStream::~CudaStream() {
  abandon();
  static_cast<void>(cudaSetDevice(gpu_));
  if (owned_) static_cast<void>(cudaStreamDestroy(native_of(stream_)));
}

void* CudaStream::native() {
  flush();
  make_current();
  return stream_;
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  make_current();
  EVENKEEL_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, native_of(stream_));
}

std::shared_ptr<std::byte> CudaStream::make_scratch(std::size_t bytes) {
  make_current();
  void* data = nullptr;
  EVENKEEL_CUDA_CALL(cudaMalloc, &data, std::max<std::size_t>(bytes, 1));
  return {static_cast<std::byte*>(data), [](std::byte* own) { static_cast<void>(cudaFree(own)); }};
}

std::unique_ptr<DeviceEvent> CudaStream::make_event() {
  make_current();
  return std::make_unique<CudaEvent>();
}

void CudaStream::record(DeviceEvent& event) {
  make_current();
  EVENKEEL_CUDA_CALL(cudaEventRecord, native_of(event), native_of(stream_));
}

void CudaStream::enqueue_wait(const DeviceEvent& event) {
  make_current();
  EVENKEEL_CUDA_CALL(cudaStreamWaitEvent, native_of(stream_), native_of(event), 0);
}

void CudaStream::host_wait(const DeviceEvent& event) {
  make_current();
  EVENKEEL_CUDA_CALL(cudaEventSynchronize, native_of(event));
}

bool CudaStream::is_complete(const DeviceEvent& event) const {
  const cudaError_t result = cudaEventQuery(native_of(event));
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  cuda::check(result, "cudaEventQuery");
  return true;
}

void CudaStream::host_wait_for_all() {
  make_current();
  EVENKEEL_CUDA_CALL(cudaStreamSynchronize, native_of(stream_));
}

void CudaStream::make_current() const {
  EVENKEEL_CUDA_CALL(cudaSetDevice, gpu_);
}

}  // namespace evenkeel
