// The seconds by which a planner decides: SpillCosts, where all links are alike, and StepLinks, where ranks
// are on several nodes. A machine whose costs are known predicts both for a layer.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/cost/machine.h"
#include "evenkeel/topology/topology.h"

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

// A step whose ranks are on several nodes, by what travels on which link.
//
// Model     Products of the worst rank; rows to their experts and back; borrowed weights, in training their
//           gradients too. Rows and weights are exchanges of their own (links.h). Packing what is borrowed,
//           and what moving is taken to cost, are those above.
struct StepLinks {
  Topology topology;
  Machine machine;  // of its links the ramp counts, and how many ranks share a network interface
  ExpertWork expert;
  double row_bytes = 0;   // one way
  bool backward = false;  // the step trains
};

// Throws InvalidArgument for a topology that says nothing of its links or gives them by pairs of ranks, with
// speeds, limits of experts or several devices a rank, for a machine out of its ranges, and for negative
// sizes.
void require_links(const StepLinks& links, const char* argument);

// Whether a rank reaches another node otherwise than its own: by another link, or by one that it shares.
bool links_differ(const StepLinks& links);

// `rows` and `transfers` [P, P] row by sender: assignments, and borrowed experts. Throws InvalidArgument
// where they are not for the topology's ranks.
double step_seconds(const StepLinks& links, std::int64_t worst_load, std::span<const double> rows,
                    std::span<const double> transfers);

}  // namespace evenkeel
