// Program 2 where it falls apart into assignment problems, each solved exactly.
//
// chain       Layer to layer, all links and capacities alike: what an exchange costs depends on which
//             receiver shares a rank with which sender, and as ranks are interchangeable each exchange can
//             have its best pairing. Worst pair: all traffic above the bound of rank_bound.h must stay, which
//             takes at most one receiver for each sender; of these pairings the one that keeps most. Total:
//             the one that keeps most.
// next        Layer to layer, any links: the best ranks of a layer given those of the layer before it.
// dispatch    In each layer on its own, any links and capacities: a cluster's cost on a rank does not depend
//             on where the others are.
// Cost        O(P^3) an exchange at worst; the costs of clusters on ranks take O(P^2) where links are of two
//             levels. All look at the time.
#pragma once

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/rank_rule.h"

namespace evenkeel::internal {

// Empty if the deadline passed before.
std::vector<Ranks> chain_of_pairings(const ClusterTraffic& traffic, std::size_t num_layers,
                                     const Deadline& deadline);
// Of the receivers of the exchange; `layer` is theirs. Empty if the deadline passed before.
Ranks best_receivers(const ClusterTraffic& traffic, const RankRule& rule, std::size_t exchange,
                     std::size_t layer, const Ranks& senders, const Deadline& deadline);
// Of the layers that the deadline leaves time for; the others are empty.
std::vector<Ranks> best_dispatch(const ClusterTraffic& traffic, const RankRule& rule,
                                 const Deadline& deadline);

}  // namespace evenkeel::internal
