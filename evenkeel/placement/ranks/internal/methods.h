// The methods of program 2: a rank for every cluster. fast_ranks() chooses among them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/rank_rule.h"
#include "evenkeel/placement/ranks/internal/cluster_traffic.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel::internal {

// Without an integer-program solver, for any clusters whose traffic and sizes are known.
RankAssignment fast_ranks(const ClusterTraffic& traffic, const RankRule& rule, const Deadline& deadline);

// Program 2 where it falls apart into assignment problems, each solved exactly.
//
// Chain       Layer to layer, all links and capacities alike: what an exchange costs depends on which
//             receiver shares a rank with which sender, and as ranks are interchangeable each exchange can
//             have its best pairing. Worst pair: all traffic above the bound of worst pairs must stay, which
//             takes at most one receiver for each sender; of these pairings the one that keeps most. Total:
//             the one that keeps most.
// Next        Layer to layer, any links: the best ranks of a layer given those of the layer before it.
//             Under dispatch_combine the senders are the ranks, so each layer is on its own.
// Cost        O(P^3) an exchange at worst; the costs of clusters on ranks take O(P^2) where links are of two
//             levels. All look at the time.
//
// Empty if the deadline passed before.
std::vector<Ranks> chain_of_pairings(const ClusterTraffic& traffic, const Deadline& deadline);
// Of the receivers of the exchange. Empty if the deadline passed before.
Ranks best_receivers(const ClusterTraffic& traffic, const RankRule& rule, std::size_t exchange,
                     const Ranks& senders, const Deadline& deadline);

// Program 2 for few ranks, layer to layer: a dynamic program over the P! ways to put the clusters of a layer
// on ranks, exact over all layers and for any links and capacities. Totals of free sizes are not asked.
//
// Cost        (P!)^2 exchanges judged for each step: 24^2 at P = 4, half a million at P = 6.
// Guarantee   Least cost.
//
// Exchange e, from layer e to the next, with its senders and receivers on these ranks.
using ExchangeCost =
    std::function<double(std::size_t exchange, const Ranks& senders, const Ranks& receivers)>;
double permutation_steps(int num_ranks, int num_layers);
// Empty: the deadline passed before, or no way fits.
std::vector<Ranks> best_permutations(const RankRule& rule, std::size_t num_ranks, const ExchangeCost& cost,
                                     const Deadline& deadline);

// Program 2 by local search, for links and sizes that no exact method here takes.
//
// Problem     Eq. 8 for given clusters, from ranks that the rule allows.
// Method      Two clusters of a layer swap ranks; two ranks with the same links to all others, or two such
//             nodes, are swapped in a run of layers, which changes the cost only at the ends of the run. What
//             lowers Eq. 8 stays, until nothing does. With totals to hold, swaps keep them.
// Cost        Lines of each exchange keep their largest (or their sum), so a swap is judged in O(P).
// Guarantee   Never worse than the start; the rule holds.
std::vector<Ranks> search_ranks(const ClusterTraffic& traffic, const RankRule& rule, std::vector<Ranks> start,
                                const Deadline& deadline);

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
//
// Eq. 8 of an exchange at best. Under layer_to_layer.
double exchange_bound(const ClusterTraffic& traffic, std::size_t exchange, const Deadline& deadline);

// The largest traffic of an exchange that leaves its rank, at best: the largest second largest of a row or
// column.
double least_crossing(const ClusterTraffic& traffic, std::size_t exchange);

// Each of n rows to one of n columns, all different, at the least total or the least largest cost.
//
// Total       Shortest augmenting paths with potentials, row by row (the Hungarian method). O(n^3) time at
// worst,
//             O(n) memory beside the costs. Exact while the costs and their sums of n are integers below
//             2^53.
// Largest     Binary search over the costs; for each, a matching by augmenting paths over costs no larger.
//             O(n^3 log n) at worst; O(n^2 log n) as met.
// Time        Both look at it in every O(n) steps.
// Source      H. W. Kuhn, The Hungarian method for the assignment problem (1955); paths as in R. Jonker and
//             A. Volgenant (1987).
//
// costs [n, n], finite. The column of each row; empty if the deadline passed before.
std::vector<int> least_total_assignment(std::span<const double> costs, std::size_t n,
                                        const Deadline& deadline);
// costs [n, n], infinity where forbidden. The same.
std::vector<int> least_largest_assignment(std::span<const double> costs, std::size_t n,
                                          const Deadline& deadline);

}  // namespace evenkeel::internal
