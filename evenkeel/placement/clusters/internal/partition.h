// Splits the experts of one layer into clusters of nearly equal load: the task, an answer, its cost and a
// lower bound.
//
// Problem     Eq. 1 of one layer: minimise the sum over P clusters of |load - mean|. Cluster c has at least
//             least[c] and at most most[c] experts.
// Deviation   sum over clusters of |P load - total|, that is P times Eq. 1: an integer, so that optimality is
//             exact.
// Bound       The larger of two. Integrality: let all loads be multiples of g, and total = g (q P + r). Then
//             r clusters at q + 1 and P - r at q deviate 2 g r (P - r), and no clusters deviate less. Large
//             experts: let u clusters hold the j largest experts. They also hold at least (least sizes of u
//             clusters) - j other experts, which weigh at least as much as the smallest ones. The amount by
//             which their load exceeds u means is deviation, and the other clusters fall short by as much.
//             For each j the least deviation over all u counts; the bound is the largest of these over all j.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

__extension__ using Wide = __int128;  // holds P^2 x a total of 63 bits

struct PartitionTask {
  std::span<const std::int64_t> loads;  // [E]
  std::vector<int> least;               // [P] fewest experts of each cluster
  std::vector<int> most;                // [P] most experts of each cluster

  int num_experts() const { return static_cast<int>(loads.size()); }
  int num_clusters() const { return static_cast<int>(least.size()); }
};

using Clusters = std::vector<int>;  // [E] cluster of each expert

std::vector<std::int64_t> cluster_loads(const PartitionTask& task, const Clusters& clusters);
Wide deviation(const PartitionTask& task, const Clusters& clusters);
Wide deviation_bound(const PartitionTask& task);
// Compares the deviation first, then the largest load.
bool is_better(const PartitionTask& task, const Clusters& one, const Clusters& other);

struct Partition {
  Clusters clusters;
  Wide deviation = 0;
  Wide bound = 0;
  bool proven() const { return deviation == bound; }
};

// Assigns experts largest first, then swaps between clusters; for at most 16 experts searches all partitions.
// `search_steps` limits that search. The answer depends only on the arguments, unless the deadline passes:
// then it is the best so far.
Partition best_partition(const PartitionTask& task, std::int64_t search_steps, const Deadline& deadline);

// Fast partitions of any size, in microseconds: largest first, then exchanges between two clusters.
//
// Method      Experts by decreasing load, each to the lightest cluster that may take it. Then exchanges
//             between two clusters of different load: at most two experts for at most two (also one for none
//             if sizes allow it). The exchange that leaves the two loads most alike is made, until no pair of
//             clusters gains. Two clusters below the mean are skipped, since an exchange changes neither Eq.
//             1 nor the largest load. Above 64 experts, two clusters that differ by less than 1/50,000 of the
//             mean are skipped too.
// Cost        Largest first O(E log P). Per pair of clusters of k experts O(k) at first, and O(k^2) once only
//             exchanges of two are left. The deadline is checked for each cluster and exchange.
// Guarantee   Sizes keep within their limits. An exchange narrows the difference of two loads and keeps their
//             sum, so it never raises Eq. 1 or the larger load.
Clusters largest_first(const PartitionTask& task);
// Improves the given clusters until no exchange helps or the deadline passes.
void exchange(const PartitionTask& task, Clusters& clusters, const Deadline& deadline);
// largest_first(), then exchange(), with a few restarts from randomly changed clusters where that is cheap.
Clusters exchanged_partition(const PartitionTask& task, const Deadline& deadline);

// The best partition of a layer of few experts, by trying every partition that can be best.
//
// Problem     PartitionTask of at most 16 experts.
// Method      Halve the clusters. Try every subset of the experts as one half. A subset is judged by how far
//             the loads of both halves are from their means, since the clusters inside a half together
//             deviate at least as much. Then split each half the same way, down to single clusters. An odd
//             number of clusters first splits off the cluster with the first expert.
// Cost        At most the given steps; a step looks at one subset. 16 experts in 4 clusters take at most a
//             million.
// Guarantee   If it finishes, nothing better exists.
// Source      The idea of halving with bounds comes from sequential number partitioning.
constexpr int kMostSearchedExperts = 16;

struct SearchedPartition {
  Clusters clusters;  // the best that deviates less than `known`; empty if there is none
  bool finished;      // every partition that could be better was tried
};

SearchedPartition search_partitions(const PartitionTask& task, Wide known, std::int64_t steps);

}  // namespace evenkeel::internal
