// Seconds of a step whose ranks are on several nodes, by what travels on which link.
//
// Model     Products of the worst rank; rows to their experts and back; borrowed weights, in training their
//           gradients too. Rows and weights are exchanges of their own (links.h). Packing what is borrowed,
//           and what moving is taken to cost, are those of spill_costs.h.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// What a planner is told that knows the links.
struct StepLinks {
  Topology topology;
  Machine machine;  // of its links the ramp counts, and how many ranks share a network interface
  ExpertWork expert;
  double row_bytes = 0;   // one way
  bool backward = false;  // the step trains
};

// Throws InvalidArgument for a topology that gives links by pairs of ranks, speeds, limits of experts or
// several devices a rank, for a machine out of its ranges, and for sizes below 0.
void require_links(const StepLinks& links, const char* argument);

// `rows` and `transfers` [P, P] row by sender: assignments, and borrowed experts. Throws InvalidArgument
// where they are not for the topology's ranks.
double step_seconds(const StepLinks& links, std::int64_t worst_load, std::span<const double> rows,
                    std::span<const double> transfers);

}  // namespace evenkeel
