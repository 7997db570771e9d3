// Placement with redundant experts: which experts get copies, and on which ranks all copies live.
//
// Problem     fill the slots of all ranks, each expert at least once, so that the heaviest rank is as light
//             as possible. An expert's load is split evenly over its copies. Flat: any slot. Grouped: the
//             experts of a group, copies included, stay on one node.
// Method      groups to nodes by branch and bound. In each node: copies go to whichever expert has the
//             largest share; then largest first onto ranks; then swaps of one copy for one, and of two for
//             two. Small cases are searched completely.
// Cost        a layer: E log E + S log P + swaps; measured in docs/placement.md#redundant-experts.
// Guarantee   `bound`: no placement of the same kind (flat or grouped, same slots) has a lower max/mean. The
//             result depends on the input alone.
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
  int num_physical = 0;           // slots over all ranks, at least E
  int num_ranks = 0;
  int num_nodes = 1;   // ranks of a node are consecutive
  int num_groups = 1;  // above 1: groups of consecutive experts, equally many in each, stay on one node
  // If set, an expert may be on a rank twice where that is found to be lighter. If not, only in a pool (all
  // ranks, or a grouped node) that has fewer experts than a rank has slots.
  bool repeats = false;
  // Only the time limit and the stop are used. After either ends the search, layers are filled largest first,
  // and their bound is the mean.
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

// Throws Infeasible where some rank has more slots than different experts can fill; the message names the
// largest possible number. Reads only sizes.
void require_distinct_experts(const ReplicaProblem& problem);

// The homes. Throws Infeasible where a rank holds an expert twice, which a Placement cannot express.
Placement placement_of(const ReplicaSolution& solution, int num_experts);

}  // namespace evenkeel
