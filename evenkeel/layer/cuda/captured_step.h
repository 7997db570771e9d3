// A step of all ranks as one CUDA graph, to be replayed without their threads.
//
// Why one Ranks that share a GPU wait for each other's streams, and a graph's edges stay within it.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cuda/stream.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"

namespace evenkeel {

class CapturedStep {
 public:
  // Collective: captures what `step` hands to the ranks' streams. It must have run once before, so that
  // nothing is made or loaded under capture, with experts' gradients at the same addresses.
  CapturedStep(Communicator& comm, CudaStream& stream, const std::function<void()>& step);
  // To end before the layers that take part.
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // Collective: the step once more, on rank 0's stream; what the others hand to their streams later comes
  // after it, and it after what they have handed over.
  void replay();

 private:
  void end_capture();

  CudaStream& stream_;
  cuda::StreamBarrier barrier_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace evenkeel
