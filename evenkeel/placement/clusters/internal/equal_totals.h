// Free sizes with the same number of experts on every rank over all layers (Eq. 13).
//
// Problem     Clusters of each layer, of any size; cluster c of every layer belongs to rank c. Renumber the
//             clusters of each layer so that the sizes of each rank add up to its total. If no renumbering
//             achieves this, change sizes at the least cost in Eq. 1.
// Method      Clusters of a layer swap numbers while that brings the totals nearer to the required ones.
//             Then, while totals differ, one expert moves from a rank with too many to a rank with too few,
//             in the layer where that costs least after swaps at the new sizes.
// Guarantee   Totals hold if the outcome says so. The cost need not be minimal. If renumbering suffices, the
//             clusters keep their experts.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

enum class TotalsMet { by_numbers, by_sizes, not_found };

// All tasks have the same least and most sizes. A cluster may have number c only if its size is at most
// most[c].
TotalsMet meet_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                      std::vector<Clusters>& layers, const Deadline& deadline);

// Free sizes with equal totals (Eq. 13) at the least cost, for few experts and ranks.
//
// Problem     Choose clusters of each layer, of any sizes. Sizes must add up to the same on every rank (or
//             differ by one where E L is no multiple of P), and Eq. 1 over all layers must be minimal. All
//             capacities are alike.
// Method      For each layer and each way to cut E experts into P sizes, find the least cost, unless it
//             cannot beat the best known answer. Then a dynamic program over layers; its state is the totals
//             so far, sorted because ranks are interchangeable.
// Cost        Bounded: at most kMostStates states, and the given steps for each search of a layer.
// Guarantee   If it finishes, nothing better exists.
constexpr int kMostSizedClusters = 4;

// Searches for clusters that deviate less than `known` over all layers together, numbered so that totals
// hold, and stores them in `layers`. `least`: a lower bound on the deviation of each layer. Returns true if
// the search finished: then nothing beats the clusters found, or `known` if none were found.
bool improve_sizes(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                   const std::vector<Wide>& least, Wide known, std::int64_t search_steps,
                   const Deadline& deadline, std::vector<Clusters>& layers);

}  // namespace evenkeel::internal
