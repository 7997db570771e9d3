// A CUDA stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "evenkeel/device/device_stream.h"

namespace evenkeel {

class CudaStream final : public DeviceStream {
 public:
  // Creates a stream that does not wait for CUDA's default stream. Throws Unsupported, with the reason, if
  // GPU `gpu` cannot be used.
  explicit CudaStream(int gpu = 0);
  // Uses the caller's cudaStream_t on GPU `gpu`, which must outlive this object.
  CudaStream(int gpu, void* native);
  // Waits for the submitted work, so that its buffers may be freed afterwards.
  ~CudaStream() override;

  int gpu() const { return gpu_; }
  // The cudaStream_t for launching kernels and copies now. Flushes, and makes the stream's GPU the thread's
  // current one. Call again after a communicator call: operations posted later need a new flush.
  void* native();

  void copy(void* to, const void* from, std::size_t bytes) override;
  void reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
              void* reduced) override;
  std::shared_ptr<std::byte> make_scratch(std::size_t bytes) override;
  using DeviceStream::record;
  void enqueue_wait(const DeviceEvent& event) override;
  void host_wait(const DeviceEvent& event) override;

 private:
  std::unique_ptr<DeviceEvent> make_event() override;
  void record(DeviceEvent& event) override;
  bool is_complete(const DeviceEvent& event) const override;
  void host_wait_for_all() override;
  void make_current() const;

  int gpu_;
  void* stream_ = nullptr;
  bool owned_;
};

}  // namespace evenkeel
