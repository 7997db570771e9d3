// Runs the assignments of a one-rank case with the GPU's experts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/cuda/stream.h"
#include "tests/compute/emulation/grouped_case.h"
#include "tests/support/device_memory.h"

namespace evenkeel::testing {

struct GpuOptions {
  CudaKernels kernels = CudaKernels::automatic;
  DataType gradients = DataType::f32;
  bool recompute = false;
  std::uint64_t shuffle = 0;
  int gap = 0;
};

class GpuExperts {
 public:
  GpuExperts(const MoeCase& problem, const GpuOptions& options);

  // Runs forward and backward in poisoned memory.
  FfnOutcome run();
  // Like run(), but captured in a graph and replayed `replays` times. Weight gradients are those of the last
  // replay.
  FfnOutcome replay(int replays);

 private:
  void clear();
  void launch();
  FfnOutcome read() const;

  const MoeCase& problem_;
  ExpertShape shape_;
  GpuOptions options_;
  GroupedCase grouped_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  CudaStream stream_;
  std::vector<DeviceMemory<std::byte>> parts_;  // the memory of all weights
  DeviceMemory<ExpertWeights> weights_;
  std::vector<DeviceMemory<std::byte>> gradient_blocks_;
  DeviceMemory<DeviceExpertGradients> gradients_;
  DeviceMemory<std::int32_t> begin_, input_row_, output_row_;
  DeviceMemory<std::byte> input_, grad_output_, output_, saved_, forward_workspace_, backward_workspace_;
  DeviceMemory<float> row_weight_, grad_weight_, grad_input_;
  DeviceGroups groups_;
  DeviceBackward backward_;
};

}  // namespace evenkeel::testing
