// A CUDA stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "evenkeel/device/device_stream.h"

namespace evenkeel {

class CudaStream final : public DeviceStream {
 public:
  // A stream of its own, which does not wait for CUDA's default stream. Throws Unsupported, with the reason,
  // where GPU `gpu` cannot be used.
  explicit CudaStream(int gpu = 0);
  // Somebody else's cudaStream_t on that GPU, which must outlive this.
  CudaStream(int gpu, void* native);
  // Waits for the work that was handed over: what it uses may then go.
  ~CudaStream() override;

  int gpu() const { return gpu_; }
  // The cudaStream_t, to launch kernels and copies on now: flushes, and makes its GPU the thread's current
  // one. What is posted later is not before what was launched, so ask again after a communicator's call.
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
