// Program 2 for few ranks: a dynamic program over the P! ways to put the clusters of a layer on ranks, exact
// over all layers and for any links.
//
// Cost        (P!)^2 P^2 steps for each exchange: 24^2 x 16 at P = 4, half a million x 36 at P = 6.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/monitor.h"

namespace evenkeel::exact {

double permutation_steps(int num_ranks, int num_layers);

// may_lie[l][cluster][rank]. The ranks of the clusters, of least cost over all exchanges (one for each layer
// but the first, from the layer before); empty: ended early, or no way fits.
std::vector<Ranks> best_permutations(const std::vector<Exchange>& exchanges, const PairCosts& costs,
                                     const std::vector<std::vector<std::vector<bool>>>& may_lie,
                                     const Monitor& monitor);

}  // namespace evenkeel::exact
