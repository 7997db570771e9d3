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

// Partitions of any size in microseconds: largest first, then exchanges between two clusters.
//
// Method      Experts by decreasing load, each to the lightest cluster that may take it. Then, for two
//             clusters of unlike load, the exchange of at most two experts against at most two (one against
//             none where sizes allow) that leaves their loads most alike, until no two clusters gain from
//             one. Two clusters that are both below the mean are left, as exchanges between them change
//             neither Eq. 1 nor the largest load; above 64 experts, so are two that differ by less than
//             1/50,000 of the mean.
// Cost        Largest first O(E log P). Then per pair of clusters of k experts O(k), and O(k^2) once only
//             exchanges of two are left; the time is looked at for each cluster and exchange.
// Guarantee   Sizes hold. An exchange narrows the distance of two loads whose sum stays, so no exchange
//             raises Eq. 1 or the larger load.
Clusters largest_first(const PartitionTask& task);
// From the clusters given to ones that no exchange improves, or that the deadline leaves.
void exchange(const PartitionTask& task, Clusters& clusters, const Deadline& deadline);
// Both, with a few restarts from shaken clusters where that is cheap.
Clusters exchanged_partition(const PartitionTask& task, const Deadline& deadline);

// The best partition of a layer of few experts, by trying all that can be best.
//
// Problem     PartitionTask of at most 16 experts.
// Method      The clusters are halved: every subset of the experts that can be the load of one half, judged
//             by how far the halves are from their means (the clusters inside deviate at least as much
//             together), then each half the same way, down to single clusters. An odd number of clusters
//             splits off the one that holds the first expert.
// Cost        At most the steps given; a step looks at one subset. 16 experts, 4 clusters: a million or
//             fewer.
// Guarantee   Where it finishes, nothing better exists.
// Source      The idea of halving with bounds is that of sequential number partitioning.
constexpr int kMostSearchedExperts = 16;

struct SearchedPartition {
  Clusters clusters;  // the best of those that deviate less than `known`; empty: there is none
  bool finished;      // every partition that could be better has been looked at
};

SearchedPartition search_partitions(const PartitionTask& task, Wide known, std::int64_t steps);

}  // namespace evenkeel::internal
