// Program 2 for up to four ranks, exactly: all ranks of a layer, over all layers.
//
// Problem     Eq. 8 for given clusters, layer to layer, any links, any capacities; totals of free sizes are
//             not asked.
// Method      Dynamic program over layers; a state is one of the P! ways to give a layer's clusters ranks.
// Cost        L (P!)^2 P^2: 58 layers of 4 ranks, half a million steps.
// Guarantee   Least cost.
#pragma once

#include "evenkeel/placement/internal/rank_rule.h"

namespace evenkeel::internal {

constexpr int kMostRanksOfProgram = 4;

std::vector<Ranks> best_ranks(const ClusterTraffic& traffic, const RankRule& rule, std::size_t num_layers);

}  // namespace evenkeel::internal
