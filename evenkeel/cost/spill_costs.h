// Predicted seconds that planners decide by: SpillCosts where all links are equal, StepLinks where ranks are
// on several nodes. Both come from a machine's numbers and a layer's sizes.
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
// Method     Predicted gain: the worst rank's load with everything at home, minus the worst rank's load under
//            the plan, times the seconds of one assignment. Predicted cost: the fixed cost of a step that
//            moves work, plus the transfers of the rank that sends or receives the most. If the gain is not
//            above the cost, everything stays at home.
// Guarantee  The same answer on every rank that has the same costs: it depends on the arguments alone.
struct SpillCosts {
  double seconds_per_assignment = 0;  // its products, and its row to the expert and back
  double seconds_per_transfer = 0;    // one expert's weights, and in training their gradients
  double seconds_per_step = 0;        // of a step that moves any work

  friend bool operator==(const SpillCosts&, const SpillCosts&) = default;
};

// The seconds of a step without its exchanges, and how many rows and bytes the exchanges carry.
struct StepParts {
  double assignment_seconds = 0;  // its products
  double row_trips = 0;           // how often a row travels
  double borrowed_bytes = 0;      // of a borrowed expert: weights to the borrower, gradients back
  double packing_seconds = 0;     // of a borrowed expert, at both ends
  double moving_seconds = 0;      // of any step that moves work
};
StepParts step_parts(const Machine& machine, const ExpertWork& expert, bool backward);

// What moving work really costs, divided by the sum of its parts. Measured on the shipped layer: 1.3 in
// training and 1.6 in forward, because pieces of few rows multiply slower, and because equally loaded ranks
// wait for the slowest of them.
inline constexpr int kMovingCostFactor = 2;

// Costs of one step. An assignment costs its products, and sending its row of `row_bytes` to the expert and
// back. A transfer costs sending the weights, packing them, and reading them once more than at home. Backward
// packs them again, and writes, sends and adds gradients in f32.
SpillCosts spill_costs(const Machine& machine, const ExpertWork& expert, double row_bytes, bool backward);

// A step whose ranks are on several nodes, predicted from the bytes on each link.
//
// Model     Adds up the seconds for the products of the worst rank, for the rows to their experts and back,
//           and for borrowed weights, in training with their gradients. Rows and weights are separate
//           exchanges (links.h). Packing and kMovingCostFactor count as in spill_costs().
struct StepLinks {
  Topology topology;
  Machine machine;  // of its link numbers only ramp_bytes and ranks_per_nic count
  ExpertWork expert;
  double row_bytes = 0;   // one way
  bool backward = false;  // the step trains
};

// Throws InvalidArgument for a topology that gives no links, or gives links by pairs of ranks, speeds other
// than 1, limits of experts, or several devices per rank. Also throws it for a machine outside its ranges,
// and for negative or huge sizes.
void require_links(const StepLinks& links, const char* argument);

// Whether links to other nodes differ from links within a node: in speed, or because ranks share an
// interface.
bool links_differ(const StepLinks& links);

// `rows` counts assignments and `transfers` counts borrowed experts; both are [P, P] with one row per sender.
// Throws InvalidArgument unless both are for the topology's ranks.
double step_seconds(const StepLinks& links, std::int64_t worst_load, std::span<const double> rows,
                    std::span<const double> transfers);

}  // namespace evenkeel
