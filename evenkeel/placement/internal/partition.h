// Splitting the experts of one layer into clusters of nearly equal load: the task, an answer, what it costs
// and what no answer can undercut.
//
// Problem     Eq. 1 of one layer: minimise the sum over P clusters of |load - mean|, where cluster c has at
//             least least[c] and at most most[c] experts.
// Deviation   sum over clusters of |P load - total|, P times Eq. 1: an integer, so that optimality is exact.
// Bound       The larger of two. Integrality: with all loads multiples of g and total = g (q P + r), r
//             clusters at q + 1 and P - r at q deviate 2 g r (P - r), and nobody deviates less. Large
//             experts: the u clusters that hold the j largest experts hold at least (least sizes of u
//             clusters) - j others, which weigh no less than as many of the smallest; what that has above u
//             means is deviation, and as much again is missing elsewhere. The best u for each j, the worst j.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

__extension__ using Wide = __int128;  // P^2 x a total of 63 bits

struct PartitionTask {
  std::span<const std::int64_t> loads;  // [E]
  std::vector<int> least;               // [P] experts of a cluster
  std::vector<int> most;                // [P]

  int num_experts() const { return static_cast<int>(loads.size()); }
  int num_clusters() const { return static_cast<int>(least.size()); }
};

using Clusters = std::vector<int>;  // [E] cluster of each expert

std::vector<std::int64_t> cluster_loads(const PartitionTask& task, const Clusters& clusters);
std::vector<int> cluster_sizes(const Clusters& clusters, int num_clusters);
Wide deviation(const PartitionTask& task, const Clusters& clusters);
Wide deviation_bound(const PartitionTask& task);
// Deviation first, then the largest load.
bool is_better(const PartitionTask& task, const Clusters& one, const Clusters& other);

struct Partition {
  Clusters clusters;
  Wide deviation = 0;
  Wide bound = 0;
  bool proven() const { return deviation == bound; }
};

// Largest first, exchanges between clusters, and, where there are at most 16 experts, a search of all
// partitions. `search_steps` bounds that search; the answer does not depend on anything else, unless the
// deadline passes: then it is the best so far.
Partition best_partition(const PartitionTask& task, std::int64_t search_steps, const Deadline& deadline);

}  // namespace evenkeel::internal
