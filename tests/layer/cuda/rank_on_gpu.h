// One rank of a MoeCase in the memory of GPU 0: its layer with its experts, and its inputs and outputs of a
// step.
#pragma once

#include <cstddef>
#include <vector>

#include "evenkeel/layer/cuda/on_gpu.h"
#include "evenkeel/layer/moe_layer.h"
#include "tests/layer/cuda/cuda_case.h"
#include "tests/support/device_memory.h"

namespace evenkeel::testing {

class LayerOnGpu {
 public:
  LayerOnGpu(const MoeCase& problem, Communicator& comm, const CudaRunOptions& options);

  MoeLayer& layer() { return layer_; }
  CudaStream& stream() { return stream_; }
  std::int64_t peak_bytes() const { return arena_.peak_bytes(); }

  // Gradients of the native experts, in device memory.
  std::span<const ExpertGradients> gradients() const { return native_gradients_; }
  void clear_gradients();
  // Copies the gradients of the experts that this rank owns to `result`.
  void read(MoeResult& result) const;

 private:
  void set_experts(const MoeCase& problem);
  bool is_owner(ExpertId expert) const { return placement_.owner(expert) == rank_; }

  ExpertShape expert_;
  RankId rank_;
  CudaStream stream_{0};
  Arena arena_;
  LayerPlacement placement_;
  MoeLayer layer_;
  std::vector<DeviceMemory<std::byte>> tensors_;
  std::vector<DeviceMemory<float>> gradients_;  // four per native expert
  std::vector<ExpertGradients> native_gradients_;
};

class StepOnGpu {
 public:
  StepOnGpu(const MoeCase& problem, RankId rank);

  // Takes over the case's choices and router weights, and clears earlier results.
  void choose(const MoeCase& problem);
  ForwardState forward(LayerOnGpu& layer);
  void backward(LayerOnGpu& layer, ForwardState state);
  void read(MoeResult& result, bool backward) const;

 private:
  int rank_;
  int top_k_;
  std::int64_t columns_, first_, tokens_;
  DeviceMemory<std::byte> hidden_, grad_output_, output_, grad_hidden_;
  DeviceMemory<std::int32_t> experts_;
  DeviceMemory<float> weights_, grad_weights_;
};

}  // namespace evenkeel::testing
