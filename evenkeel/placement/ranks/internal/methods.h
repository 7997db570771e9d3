// The methods of program 2: a rank for every cluster. fast_ranks() chooses among them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/rank_rule.h"
#include "evenkeel/placement/ranks/internal/cluster_traffic.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel::internal {

// Needs no integer-program solver. For any clusters whose traffic and sizes are known.
RankAssignment fast_ranks(const ClusterTraffic& traffic, const RankRule& rule, const Deadline& deadline);

// Program 2 where it splits into assignment problems, each solved exactly.
//
// Chain       From layer to layer, with all links and capacities alike. The cost of an exchange depends only
//             on which receiver shares a rank with which sender. Ranks are interchangeable, so each exchange
//             can have its best pairing. For worst_pair, all pairs with more traffic than least_crossing()
//             must stay on their rank, at most one receiver per sender; among such pairings, the one that
//             keeps the most traffic is best. For total, the pairing that keeps the most traffic is best.
// Next        From layer to layer, any links: the best ranks of a layer, given those of the layer before it.
//             Under dispatch_combine the senders are the ranks, so layers are independent.
// Cost        O(P^3) an exchange at worst. The costs of all clusters on all ranks take O(P^2) where links
//             have two levels. All functions check the deadline.
//
// Returns empty if the deadline passes first.
std::vector<Ranks> chain_of_pairings(const ClusterTraffic& traffic, const Deadline& deadline);
// Ranks of the receivers in the exchange. Empty if the deadline passes first.
Ranks best_receivers(const ClusterTraffic& traffic, const RankRule& rule, std::size_t exchange,
                     const Ranks& senders, const Deadline& deadline);

// Program 2 for few ranks, from layer to layer: a dynamic program over the P! ways to put the clusters of a
// layer on ranks. Exact over all layers, for any links and capacities. Totals of free sizes are ignored.
//
// Cost        (P!)^2 exchange costs per exchange: 24^2 at P = 4, half a million at P = 6.
// Guarantee   Least cost.
//
// Cost of exchange e, from layer e to the next, with its senders and receivers on these ranks.
using ExchangeCost =
    std::function<double(std::size_t exchange, const Ranks& senders, const Ranks& receivers)>;
double permutation_steps(int num_ranks, int num_layers);
// Empty if the deadline passes first, or if the rule allows no permutation.
std::vector<Ranks> best_permutations(const RankRule& rule, std::size_t num_ranks, const ExchangeCost& cost,
                                     const Deadline& deadline);

// Program 2 by local search, for links and sizes that the exact methods here do not cover.
//
// Problem     Eq. 8 for given clusters, starting from ranks that the rule allows.
// Method      Two clusters of a layer swap ranks. Two ranks with the same links to all others are swapped in
//             a run of consecutive layers, which changes the cost only at the ends of the run. A swap is kept
//             if it lowers Eq. 8; the search ends when none does. If the rule has totals, swaps preserve
//             them.
// Cost        Each exchange stores the largest cost (or the sum) of each row and column, so a swap is judged
//             in O(P).
// Guarantee   Never worse than the start; the rule holds.
std::vector<Ranks> search_ranks(const ClusterTraffic& traffic, const RankRule& rule, std::vector<Ranks> start,
                                const Deadline& deadline);

// A lower bound on the cost of any assignment of ranks to given clusters, exchange by exchange.
//
// Worst pair  In each row and each column of an exchange at most one pair stays on a rank. So the second
//             largest traffic of each row and column crosses ranks, at best on the fastest link. A second
//             bound: if the cost is at most t, clusters joined by traffic above t x the bandwidth of the
//             fastest link between nodes must share a node. If more clusters are joined than a node has
//             ranks, some of this traffic crosses nodes, so the cost is above t.
// Total       The traffic that stays on a rank is at most the best matching of senders to receivers. The
//             traffic that stays in a node is at most the m largest of each row, or of each column, for nodes
//             of up to m ranks.
// Guarantee   Each exchange is bounded alone; the sum over exchanges bounds Eq. 8. Once the deadline has
//             passed, only bounds that take O(P^2) steps are used.
//
// A lower bound of Eq. 8 for one exchange under layer_to_layer.
double exchange_bound(const ClusterTraffic& traffic, std::size_t exchange, const Deadline& deadline);

// Whatever the assignment, some pair with at least this traffic crosses ranks. It is the maximum, over rows
// and columns, of their second largest traffic.
double least_crossing(const ClusterTraffic& traffic, std::size_t exchange);

// Assigns each of n rows to a different one of n columns, so that the total or the largest cost is least.
//
// Total       Shortest augmenting paths with potentials, row by row (the Hungarian method). O(n^3) time at
//             worst, O(n) memory beside the costs. Exact if the costs and the sums of n of them are integers
//             below 2^53.
// Largest     Binary search over the costs; for each, a matching by augmenting paths over costs that are not
//             larger. O(n^3 log n) at worst; O(n^2 log n) in practice.
// Time        Both check the deadline every O(n) steps.
// Source      H. W. Kuhn, The Hungarian method for the assignment problem (1955); paths as in R. Jonker and
//             A. Volgenant (1987).
//
// costs [n, n], finite. Returns the column of each row; empty if the deadline passes first.
std::vector<int> least_total_assignment(std::span<const double> costs, std::size_t n,
                                        const Deadline& deadline);
// costs [n, n], infinity where forbidden. Returns the column of each row; empty if the deadline passes first.
std::vector<int> least_largest_assignment(std::span<const double> costs, std::size_t n,
                                          const Deadline& deadline);

}  // namespace evenkeel::internal
