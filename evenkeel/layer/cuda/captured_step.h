// A step of all ranks as one CUDA graph, which is replayed without the ranks' host threads.
//
// All ranks are in one graph because ranks that share a GPU wait for each other's streams, and edges cannot
// connect two graphs.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cuda/stream.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"

namespace evenkeel {

class CapturedStep {
 public:
  // Collective: captures the work that `step` submits to the ranks' streams. `step` must have run once
  // before, with the experts' gradients at the same addresses, so that nothing is allocated or loaded under
  // capture.
  CapturedStep(Communicator& comm, CudaStream& stream, const std::function<void()>& step);
  // Must be destroyed before the layers that take part.
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // Collective: runs the step again, on rank 0's stream. It runs after all work already submitted to any
  // rank's stream, and before all work submitted later.
  void replay();

 private:
  void end_capture();

  CudaStream& stream_;
  cuda::StreamBarrier barrier_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace evenkeel
