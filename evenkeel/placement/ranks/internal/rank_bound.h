// A lower bound on the cost of any assignment of ranks to given clusters, exchange by exchange.
//
// Worst pair  Every row and every column of an exchange has at most one pair on a rank of its own, so the
//             second largest of each crosses, at best on the fastest link. And clusters joined by traffic
//             above t x the fastest link between nodes share a node; where more are joined than a node has
//             ranks, some such traffic crosses nodes.
// Total       The traffic that stays on a rank is at most the best matching of senders to receivers. The
//             traffic that stays in a node is at most the m largest of each row, or of each column, for nodes
//             of up to m ranks.
// Guarantee   A bound of each exchange alone; the sum over exchanges is one of Eq. 8. Once the deadline has
//             passed, only bounds that take O(P^2) steps are used.
#pragma once

#include "evenkeel/placement/internal/cluster_traffic.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

// Eq. 8 of an exchange at best. Under layer_to_layer.
double exchange_bound(const ClusterTraffic& traffic, const Topology& topology, std::size_t exchange,
                      const Deadline& deadline);

// The largest traffic of an exchange that leaves its rank, at best: the largest second largest of a row or
// column.
double least_crossing(const ClusterTraffic& traffic, std::size_t exchange);

}  // namespace evenkeel::internal
