// SpillCosts are the seconds by which a planner decides by gain; spill_costs() predicts them for a layer on a
// machine whose costs are known.
#pragma once

#include "evenkeel/cost/products.h"

namespace evenkeel {

// Seconds by which a planner decides whether moving work is worth what it costs in one step.
//
// Problem    Spilling takes work from the slowest rank and makes weights travel. Where routing is nearly even
//            it costs more than it gains.
// Method     Predicted gain: the worst rank's load at home less that under the plan, times the seconds of one
//            assignment. Predicted cost: what any step pays that moves work, and the most weights that one
//            rank sends or receives. Without a gain everything stays at home.
// Guarantee  The same answer on every rank that is given the same costs: it depends on the arguments alone.
struct SpillCosts {
  double seconds_per_assignment = 0;  // its products, and the way there and back
  double seconds_per_transfer = 0;    // one expert's weights, and in training their gradients
  double seconds_per_step = 0;        // of a step that moves any work

  friend bool operator==(const SpillCosts&, const SpillCosts&) = default;
};

// What a step takes besides the way of rows and weights, and how much of these there is.
struct StepParts {
  double assignment_seconds = 0;  // its products
  double row_ways = 0;            // how often a row travels
  double borrowed_bytes = 0;      // of an expert: its weights there, its gradients back
  double packing_seconds = 0;     // of a borrowed expert, where it leaves and where it arrives
  double moving_seconds = 0;      // of any step that moves work
};
StepParts step_parts(const Machine& machine, const ExpertWork& expert, bool backward);

// Taken for what moving costs, of the sum of its parts. Seen were 1.3 in training and 1.6 forward, on the
// shipped layer: pieces of few rows multiply slower, and of equally loaded ranks the slowest counts.
inline constexpr int taken_for_moving = 2;

// Costs of one step. An assignment is multiplied, and its row of `row_bytes` travels there and back. Weights
// travel; they are packed and read once more than at home. In backward they are packed again, and gradients
// in f32 are written, travel and are added.
SpillCosts spill_costs(const Machine& machine, const ExpertWork& expert, double row_bytes, bool backward);

}  // namespace evenkeel
