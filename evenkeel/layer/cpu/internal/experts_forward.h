// The experts' work in forward on the rows of a chunk, and how its results come to their sums.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

class ExpertsForward {
 public:
  // Of a chunk of the step that was decided so; `hidden` is the row of its first token. Activations go to
  // `saved`, if it has any. All must stay.
  ExpertsForward(CpuLayer& layer, const StepDecision& decision, const Dispatched& dispatched,
                 const void* hidden, const SavedActivations& saved);
  ~ExpertsForward();
  ExpertsForward(const ExpertsForward&) = delete;
  ExpertsForward& operator=(const ExpertsForward&) = delete;

  // The results that other ranks wait for, and those that are held until their tokens' sums.
  void compute_waiting();
  // Collective. Sends them home, meanwhile computes the rest a range of tokens at a time, and writes the
  // sums.
  void compute_rest_and_sum(std::span<const float> weights, void* output);
  // The rest alone, for what it saves.
  void compute_rest() {
    while (compute_range()) {
    }
  }

 private:
  void open_results(const StepPlan& plan);
  bool compute_range();
  void add_group(ExpertId expert, std::int64_t begin, std::int64_t end);
  void multiply();

  CpuLayer& layer_;
  const Dispatched& dispatched_;
  const void* hidden_;
  const SavedActivations& saved_;
  Buffer own_rows_, results_, workspace_;
};

}  // namespace evenkeel::internal
