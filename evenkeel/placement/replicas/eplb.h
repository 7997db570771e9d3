// rebalance_experts() with the arguments, shapes and meaning of deepseek-ai/EPLB: a drop-in replacement.
//
// Policy      hierarchical where num_groups is a multiple of num_nodes (the experts of a group stay on one
//             node); else global, where groups and nodes are ignored. The same choice as the original's.
// Differs     only in the placement that is returned: replicate() searches further, so max/mean is lower in
//             nearly every layer. A node may get more groups than another if it has slots for them. As in the
//             original, an expert may be on a GPU twice, but only where nothing lighter was found.
// Source      deepseek-ai/EPLB@d52c72d5b2f2fb4c41afbf8eb21366820239913d, eplb.py (read, not copied).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct EplbProblem {
  int num_layers = 0;
  int num_experts = 0;
  std::span<const double> weight;  // [L, E] loads, 0 or more
  int num_replicas = 0;            // physical experts of a layer, a multiple of num_gpus
  int num_groups = 1;
  int num_nodes = 1;
  int num_gpus = 1;  // a multiple of num_nodes under the hierarchical policy

  bool is_hierarchical() const { return num_nodes > 0 && num_groups % num_nodes == 0; }
};

// Physical expert s of a layer is on GPU s / (num_replicas / num_gpus).
struct EplbMaps {
  std::vector<std::int64_t> physical_to_logical;  // [L, num_replicas]
  std::vector<std::int64_t> logical_to_physical;  // [L, E, max_count], ascending, then -1
  std::vector<std::int64_t> expert_count;         // [L, E] copies of each expert
  int max_count = 0;                              // the most copies of an expert in any layer
  std::vector<double> max_over_mean;              // [L] max/mean of the GPUs' loads
  std::vector<double> bound;                      // [L] a lower bound on max/mean under the same policy
};

// The equivalent problem for replicate(), under the policy that EPLB would choose. Checks only sizes; throws
// InvalidArgument where the original's assertions fail.
ReplicaProblem replica_problem_of(const EplbProblem& problem);

// Throws InvalidArgument where the original's assertions fail, and for weights that are negative or not
// finite; Infeasible for fewer replicas than experts.
EplbMaps rebalance_experts(const EplbProblem& problem);

}  // namespace evenkeel
