// Runs the assignments of a one-rank case with an emulated machine (host_machine.h).
#pragma once

#include <cstring>
#include <memory>

#include "evenkeel/compute/cuda/internal/passes.h"
#include "tests/compute/emulation/grouped_case.h"
#include "tests/compute/emulation/tiles.h"

namespace evenkeel::testing {

// Emulated device memory: aligned, and filled with NaN until written.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : lines_(new Line[number(bytes / 64 + 2)]) {
    std::memset(static_cast<void*>(lines_.get()), 0xff, number(bytes / 64 + 2) * 64);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.get()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
};

template <class Machine>
class Emulation {
 public:
  Emulation(const MoeCase& problem, const EmulationOptions& options)
      : problem_(problem),
        shape_(problem.shape().moe.expert),
        options_(options),
        grouped_(problem, options.shuffle, options.gap),
        weights_(problem.weights().begin(), problem.weights().end()),
        gradients_(weights_.size()) {
    groups_ = {.num_groups = grouped_.num_groups(),
               .begin = grouped_.begin.data(),
               .weights = weights_.data(),
               .gradients = gradients_.data(),
               .input_row = grouped_.input_row.data(),
               .output_row = grouped_.output_row.data(),
               .max_positions = grouped_.positions() + 3};
  }

  FfnOutcome run() {
    FfnOutcome outcome = empty_outcome(problem_);
    Memory saved(groups_.max_positions * shape_.gate_up_rows() * 2);
    forward(outcome, options_.recompute ? nullptr : saved.data());
    backward(outcome, options_.recompute ? nullptr : saved.data());
    return outcome;
  }

 private:
  void forward(FfnOutcome& outcome, std::byte* saved) {
    cuda::WorkspaceCarver count(nullptr);
    cuda::ForwardPieces(count, shape_, groups_.num_groups, groups_.max_positions);
    Memory workspace(count.needed());
    cuda::WorkspaceCarver carver(workspace.data());
    const cuda::ForwardPieces pieces(carver, shape_, groups_.num_groups, groups_.max_positions);
    Machine machine;
    cuda::with_activation(shape_.activation, [&]<Activation kActivation>() {
      cuda::run_forward<kActivation>(machine, shape_, groups_, problem_.hidden(0, problem_.all_tokens()).data,
                                     outcome.results.data(), saved, pieces);
    });
  }

  void backward(FfnOutcome& outcome, const std::byte* saved) {
    std::vector<std::vector<bf16>> rounded(weights_.size(),
                                           std::vector<bf16>(number(shape_.elements()), bf16(0.0f)));
    for (std::size_t e = 0; e < weights_.size(); ++e)
      gradients_[e] = options_.gradients == DataType::f32
                          ? gradients_in(shape_, outcome.grad_experts[e].data())
                          : gradients_in(shape_, rounded[e].data());
    const DeviceBackward call{.input = problem_.hidden(0, problem_.all_tokens()).data,
                              .grad_output = problem_.grad_output(0, problem_.all_tokens()).data,
                              .weight = grouped_.top_k.weights.data(),
                              .saved = saved,
                              .grad_weight = outcome.grad_weight.data(),
                              .grad_input = outcome.grad_input.data(),
                              .input_rows = problem_.all_tokens()};
    cuda::WorkspaceCarver count(nullptr);
    cuda::BackwardPieces(count, shape_, groups_.num_groups, groups_.max_positions, call,
                         Machine::kDotColumns);
    Memory workspace(count.needed());
    cuda::WorkspaceCarver carver(workspace.data());
    const cuda::BackwardPieces pieces(carver, shape_, groups_.num_groups, groups_.max_positions, call,
                                      Machine::kDotColumns);
    Machine machine;
    cuda::with_activation(shape_.activation, [&]<Activation kActivation>() {
      cuda::run_backward<kActivation>(machine, shape_, groups_, call, pieces, options_.gradients);
    });
    if (options_.gradients == DataType::f32) return;
    for (std::size_t e = 0; e < rounded.size(); ++e)
      for (std::size_t i = 0; i < rounded[e].size(); ++i)
        outcome.grad_experts[e][i] = static_cast<float>(rounded[e][i]);
  }

  const MoeCase& problem_;
  ExpertShape shape_;
  EmulationOptions options_;
  GroupedCase grouped_;
  std::vector<ExpertWeights> weights_;
  std::vector<DeviceExpertGradients> gradients_;
  DeviceGroups groups_;
};

}  // namespace evenkeel::testing
