// Placement with redundant experts: chooses which experts get copies, and the rank of every copy.
//
// Problem     fill the slots of all ranks, each expert at least once, so that the heaviest rank is as light
//             as possible. An expert's load is split evenly over its copies. Flat: a copy may take any slot.
//             Grouped: the experts of a group, copies included, stay on one node.
// Method      groups are assigned to nodes by branch and bound. In each node, each further copy goes to the
//             expert whose copies have the largest share at that point. The copies are put on ranks, largest
//             first. Then copies are swapped between ranks, one for one and two for two. Small cases are
//             searched completely.
// Cost        for each layer O(E log E + S log P), plus the swaps; measured in
//             docs/placement.md#redundant-experts.
// Guarantee   no placement of the same kind (flat or grouped, same slots) has a lower max/mean than `bound`.
//             The result depends on the input alone.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct ReplicaProblem {
  int num_layers = 0;
  int num_experts = 0;
  std::span<const double> loads;  // [L, E], 0 or more, finite
  int num_physical = 0;           // slots of all ranks together, at least E
  int num_ranks = 0;
  int num_nodes = 1;  // ranks of a node are consecutive
  // above 1: experts form groups of equally many consecutive ids; a group stays on one node
  int num_groups = 1;
  // If set, an expert may be on a rank twice where that makes the heaviest rank lighter. If not set, this
  // happens only where a pool (all ranks, or a grouped node) has fewer experts than a rank has slots.
  bool repeats = false;
  // Only the time limit and the stop request are used. If either ends the search, the remaining layers are
  // filled largest first, and their bound is the mean.
  SolveLimits limits = {.time_limit_s = std::numeric_limits<double>::infinity()};
};

struct ReplicaSolution {
  std::vector<std::int32_t> physical_to_logical;  // [L, num_physical], rank after rank
  std::vector<std::int32_t> slots_per_rank;       // [P]; equal if P divides num_physical
  std::vector<double> max_over_mean;              // [L] with an expert's load split evenly over its copies
  std::vector<double> bound;  // [L] a lower bound on max/mean of any placement of this kind
};

// Throws InvalidArgument (negative loads, sizes that do not fit), Infeasible (fewer slots than experts).
ReplicaSolution replicate(const ReplicaProblem& problem);

// Throws Infeasible if some rank has more slots than it can fill with different experts; the message names
// the largest possible number of redundant experts. Reads only sizes.
void require_distinct_experts(const ReplicaProblem& problem);

// The experts' homes. Throws Infeasible where a rank holds an expert twice, which a Placement cannot express.
Placement placement_of(const ReplicaSolution& solution, int num_experts);

}  // namespace evenkeel
