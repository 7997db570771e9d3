// Computes the experts on the rows of a chunk in forward, and sums the results per token.
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
  // For one chunk of the step that `decision` describes. `hidden` is the row of the chunk's first token.
  // Activations are written to `saved`, unless it saves none. All arguments must outlive this object.
  ExpertsForward(CpuLayer& layer, const StepDecision& decision, const Dispatched& dispatched,
                 const void* hidden, const SavedActivations& saved);
  ~ExpertsForward();
  ExpertsForward(const ExpertsForward&) = delete;
  ExpertsForward& operator=(const ExpertsForward&) = delete;

  // Computes the results that other ranks wait for, and the results that are held until their tokens are
  // summed.
  void compute_waiting();
  // Collective. Sends the results back that others wait for. Meanwhile computes the other results for one
  // range of tokens at a time, and writes the sums.
  void compute_rest_and_sum(std::span<const float> weights, void* output);
  // Computes only the other results, to save their activations.
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
