#include "evenkeel/layer/cuda/captured_step.h"

#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel {

CapturedStep::CapturedStep(Communicator& comm, CudaStream& stream, const std::function<void()>& step)
    : stream_(stream), barrier_(comm) {
  const RankId root(0);
  const bool leads = comm.rank() == root;
  const cuda::PeerAccessScope scope = barrier_.scope();
  stream.synchronize();
  // Relaxed: other threads hand over work meanwhile, each to its own stream.
  if (leads) EVENKEEL_CUDA_CALL(cudaStreamBeginCapture, cuda::native(stream), cudaStreamCaptureModeRelaxed);
  barrier_.follow(root, stream);
  step();
  barrier_.sync(stream);
  barrier_.gather();  // nobody ends the capture while another still hands over
  if (leads) end_capture();
  barrier_.gather();  // nobody waits for the GPU before the capture has ended, which would spoil it
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
