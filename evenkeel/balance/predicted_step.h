// A plan's step over links: the bytes that pass between nodes, and the seconds it is predicted to take.
#pragma once

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct PredictedStep {
  double seconds = 0;              // without rows where counts have no sources
  double row_bytes_across = 0;     // between nodes, one way
  double weight_bytes_across = 0;  // in training with gradients
};

// O(P^2 + P E). Throws InvalidArgument where ranks are not the topology's.
PredictedStep predict_step(const StepLinks& links, const Counts& counts, const StepPlan& plan);

}  // namespace evenkeel
