// Placement with redundant experts: which experts get copies, and on which ranks all copies live.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct ReplicaProblem {
  int num_layers = 0;
  int num_experts = 0;
  std::span<const double> loads;  // [L, E], 0 or more, finite
  int num_physical = 0;           // slots over all ranks, at least E
  int num_ranks = 0;
  int num_nodes = 1;   // ranks of a node are consecutive
  int num_groups = 1;  // above 1: the experts of a group stay on one node (hierarchical)
};

struct ReplicaSolution {
  std::vector<std::int32_t> physical_to_logical;  // [L, num_physical], rank after rank
  std::vector<std::int32_t> slots_per_rank;       // [P]; equal but where P does not divide num_physical
  std::vector<double> max_over_mean;              // [L], an expert's load split evenly over its copies
  std::vector<double> bound;                      // [L], max/mean below which no placement of this kind goes
};

// Throws InvalidArgument (negative loads, sizes that do not fit), Infeasible (fewer slots than experts).
ReplicaSolution replicate(const ReplicaProblem& problem);

// The homes. Throws Infeasible where a rank holds an expert twice, which a Placement cannot say.
Placement placement_of(const ReplicaSolution& solution, int num_experts);

}  // namespace evenkeel
