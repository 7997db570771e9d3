// A lower bound on the predicted milliseconds of any homes.
//
// Compute     In each layer the larger of two times: all loads divided by the speeds of all ranks, or the
//             heaviest expert together with the lightest ones that its rank must also hold, on the fastest
//             rank. With copies, the least load of the heaviest rank that replicate() proves takes the place
//             of these experts.
// Traffic     Per sending expert, at most its k largest flows stay on its rank, where k is the most experts
//             of a rank; all other flows leave it. The same holds per receiving expert, and the better bound
//             counts. Under dispatch_combine only the flow from one source can stay. The traffic that leaves
//             takes at least as long as if it were spread over all pairs in proportion to bandwidth. The
//             slowest latency always counts. Copies split flows evenly, so no copy keeps more of its part
//             than the k largest flows.
// Guarantee   The sum bounds the joint objective for every choice of sizes that the rule allows.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

struct JointBound {
  std::vector<double> compute_ms;   // [L]
  std::vector<double> exchange_ms;  // of each exchange, one way; dispatch_combine adds the way back
  double total_ms = 0;
};

// Throws Infeasible as size_rule() does. Bounds that the deadline leaves no time to compute are 0.
JointBound joint_bound(const PlacementProblem& problem, const Deadline& deadline);
// As above for placements with copies, at most most_slots on a rank. The max/mean load of layer l must be at
// least least_max_over_mean[l] in every placement.
JointBound joint_bound_of_copies(const PlacementProblem& problem, int most_slots,
                                 std::span<const double> least_max_over_mean, const Deadline& deadline);

}  // namespace evenkeel::internal
