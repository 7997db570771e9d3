// Partitions of any size in microseconds: largest first, then exchanges between two clusters.
//
// Problem     PartitionTask.
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
#pragma once

#include "evenkeel/placement/internal/partition.h"

namespace evenkeel::internal {

Clusters largest_first(const PartitionTask& task);
// From the clusters given to ones that no exchange improves, or that the deadline leaves.
void exchange(const PartitionTask& task, Clusters& clusters, const Deadline& deadline);
// Both, with a few restarts from shaken clusters where that is cheap.
Clusters exchanged_partition(const PartitionTask& task, const Deadline& deadline);

}  // namespace evenkeel::internal
