#include "evenkeel/layer/cuda/captured_step.h"

#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel {

CapturedStep::CapturedStep(Communicator& comm, CudaStream& stream, const std::function<void()>& step)
    : stream_(stream), barrier_(comm) {
  const RankId root(0);
  const bool leads = comm.rank() == root;
  const cuda::PeerAccessScope scope = barrier_.scope();
  stream.synchronize();
  // Relaxed mode, because other threads submit work to their own streams during the capture.
  if (leads) EVENKEEL_CUDA_CALL(cudaStreamBeginCapture, cuda::native(stream), cudaStreamCaptureModeRelaxed);
  barrier_.follow(root, stream);
  step();
  barrier_.sync(stream);
  barrier_.gather();  // the capture must not end while a rank still submits work
  if (leads) end_capture();
  barrier_.gather();  // a rank that waits for the GPU before the capture has ended would invalidate it
}

void CapturedStep::end_capture() {
  cudaGraph_t graph = nullptr;
  EVENKEEL_CUDA_CALL(cudaStreamEndCapture, cuda::native(stream_), &graph);
  graph_ = graph;
  cudaGraphExec_t executable = nullptr;
  EVENKEEL_CUDA_CALL(cudaGraphInstantiate, &executable, graph, 0);
  executable_ = executable;
}

CapturedStep::~CapturedStep() {
  if (executable_ != nullptr)
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)));
  if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(static_cast<cudaGraph_t>(graph_)));
}

void CapturedStep::replay() {
  const cuda::PeerAccessScope scope = barrier_.scope();
  barrier_.sync(stream_);
  if (executable_ != nullptr)
    EVENKEEL_CUDA_CALL(cudaGraphLaunch, static_cast<cudaGraphExec_t>(executable_), cuda::native(stream_));
  barrier_.sync(stream_);
}

}  // namespace evenkeel
