// One layer of program 1: its experts in P clusters of nearly equal load.
//
// Problem     minimise the sum over clusters of |P load - total| (P times Eq. 1). Cluster c has
//             least[c]..most[c] experts.
// Method      a dynamic program over subsets where it is small; HiGHS otherwise. On 16 experts in 4
//             clusters the first takes 0.02 s, the second 0.3 s.
// Cost        subsets: at most P 3^E / 2 steps and 2^E P numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

struct ExactPartition {
  std::vector<int> cluster_of;  // [E]
  double deviation = 0;         // sum over clusters of |P load - total|
  double bound = 0;
};

double deviation_of(std::span<const std::int64_t> loads, const std::vector<int>& cluster_of,
                    int num_clusters);

// Estimated steps of the dynamic program.
double subset_steps(const SizeRule& rule);
// Both functions improve `partition`, which must be feasible, and raise its bound. They return false if the
// time or a stop cut them off; `partition` is then unchanged or better.
bool partition_by_subsets(std::span<const std::int64_t> loads, const SizeRule& rule, const Deadline& deadline,
                          ExactPartition& partition);
bool partition_by_program(std::span<const std::int64_t> loads, const SizeRule& rule, double seconds,
                          const Deadline& deadline, ExactPartition& partition);

}  // namespace evenkeel::internal
