// Memory of the current GPU for tests and benchmarks: copied to and from, freed with the object.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::testing {

template <class T>
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t count) : count_(count) {
    if (count > 0) EVENKEEL_CUDA_CALL(cudaMalloc, reinterpret_cast<void**>(&data_), count * sizeof(T));
  }
  explicit DeviceMemory(std::span<const T> from) : DeviceMemory(from.size()) {
    if (!from.empty())
      EVENKEEL_CUDA_CALL(cudaMemcpy, data_, from.data(), from.size_bytes(), cudaMemcpyDefault);
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceMemory() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  // Fills with bytes that are NaN in floating-point types, so that reading them is noticed.
  void poison() { fill(0xff); }
  void clear() { fill(0); }
  // Waits for all work on the device.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EVENKEEL_CUDA_CALL(cudaDeviceSynchronize, );
    if (count_ > 0)
      EVENKEEL_CUDA_CALL(cudaMemcpy, values.data(), data_, count_ * sizeof(T), cudaMemcpyDefault);
    return values;
  }

 private:
  void fill(int byte) {
    if (count_ > 0) EVENKEEL_CUDA_CALL(cudaMemset, data_, byte, count_ * sizeof(T));
    EVENKEEL_CUDA_CALL(cudaDeviceSynchronize, );
  }

  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace evenkeel::testing
