// Times work on a stream with the device's own events.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::benchmark {

using Json = nlohmann::ordered_json;

class EventTimer {
 public:
  explicit EventTimer(CudaStream& stream) : stream_(stream) {
    EVENKEEL_CUDA_CALL(cudaEventCreate, &begin_);
    EVENKEEL_CUDA_CALL(cudaEventCreate, &end_);
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;
  ~EventTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  // The time of one run.
  float milliseconds(const std::function<void()>& run) {
    const cudaStream_t native = cuda::native(stream_);
    float elapsed = 0;
    EVENKEEL_CUDA_CALL(cudaEventRecord, begin_, native);
    run();
    EVENKEEL_CUDA_CALL(cudaEventRecord, end_, native);
    EVENKEEL_CUDA_CALL(cudaEventSynchronize, end_);
    EVENKEEL_CUDA_CALL(cudaEventElapsedTime, &elapsed, begin_, end_);
    return elapsed;
  }

  // Median and spread of `repeats` measurements. Each measures `inner` runs, so that gaps between short runs
  // do not distort the result.
  Json microseconds(int repeats, int inner, const std::function<void()>& run) {
    for (int i = 0; i < 3; ++i) run();
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i)
      times.push_back(1e3 * static_cast<double>(milliseconds([&] {
                        for (int j = 0; j < inner; ++j) run();
                      })) /
                      inner);
    std::ranges::sort(times);
    return {{"microseconds", times[times.size() / 2]}, {"least", times.front()}, {"most", times.back()}};
  }

 private:
  CudaStream& stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace evenkeel::benchmark
