// The experts' work in forward on the rows of a chunk that is here whole, and how its results come to their
// sums.
#pragma once

#include <optional>
#include <span>

#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_activations.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// Where a chunk's sums of results go.
struct ResultSums {
  std::span<const float> weights;
  void* output;
};

// Lays out the layer's result rows for a chunk of a step with this plan; before run_experts().
void open_results(LayerBody& layer, const Dispatched& dispatched, const StepPlan& plan);

// Collective. The experts' forward pass over the chunk, and its sums where they are wanted. `hidden` is the
// row of its first token; activations go to `saved`, of the positions that it has.
void run_experts(LayerBody& layer, const Dispatched& dispatched, const void* hidden,
                 const SavedActivations& saved, const std::optional<ResultSums>& sums);

}  // namespace evenkeel::internal
