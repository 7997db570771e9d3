// Predicted milliseconds that no homes undercut.
//
// Compute     In each layer the loads over the speeds of all ranks, or the heaviest expert with as many of
//             the lightest as its rank must have, on the fastest rank; with copies, what replicate() proves
//             of the heaviest rank, on the fastest one.
// Traffic     What leaves ranks is at least all that is sent but, for each sending expert, its k largest
//             flows, k the most experts of a rank (or, for each receiving one, the same; under
//             dispatch_combine, but the flow from one source). Spread over all pairs by bandwidth it takes
//             some time; and the slowest latency always counts. Copies split flows evenly, so that no copy
//             keeps more of its part than the k largest flows.
// Guarantee   The sum bounds the joint objective for every choice of sizes that the rule allows.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

struct JointBound {
  std::vector<double> compute_ms;   // [L]
  std::vector<double> exchange_ms;  // of each exchange, one way; under dispatch_combine there is a way back
  double total_ms = 0;
};

// Throws Infeasible as size_rule() does. What the deadline leaves no time for is bounded by 0.
JointBound joint_bound(const PlacementProblem& problem, const Deadline& deadline);
// The same for placements with copies, at most most_slots on a rank. No max/mean load of layer l is below
// least_max_over_mean[l].
JointBound joint_bound_of_copies(const PlacementProblem& problem, int most_slots,
                                 std::span<const double> least_max_over_mean, const Deadline& deadline);

}  // namespace evenkeel::internal
