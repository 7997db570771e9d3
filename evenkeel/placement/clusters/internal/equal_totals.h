// Free sizes with the same number of experts on every rank over all layers (Eq. 13).
//
// Problem     Clusters of each layer, each of any size; cluster c of every layer belongs to rank c. Renumber
//             the clusters of layers so that the sizes of each rank add up to its total, and where no
//             renumbering does, change sizes at the least cost in Eq. 1.
// Method      Clusters of a layer swap numbers while that brings totals nearer. Then, while a rank has one
//             too many, one expert moves to a rank with one too few, in the layer where that costs least
//             after exchanges at the new sizes.
// Guarantee   Totals hold, where the outcome says so. Not the least cost: where no renumbering is needed the
//             clusters are as they were.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

enum class TotalsMet { by_numbers, by_sizes, not_found };

// Least and most sizes are the same in all tasks; `most` says which numbers a cluster may have.
TotalsMet meet_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                      std::vector<Clusters>& layers, const Deadline& deadline);

// Free sizes with equal totals (Eq. 13) at the least cost, for few experts and ranks.
//
// Problem     Clusters of each layer of any sizes, so that sizes add up to the same on every rank (one apart
//             where they cannot), and Eq. 1 over all layers is least. All capacities alike.
// Method      For each layer, the least cost for each way to cut E experts into P sizes, as far as it can
//             still beat the best known answer. Then a dynamic program over layers whose state is the totals
//             so far, ascending, as ranks are interchangeable.
// Cost        Bounded: at most kMostStates states, and the steps given for each search of a layer.
// Guarantee   Where it finishes, nothing better exists.
constexpr int kMostSizedClusters = 4;

// Looks for clusters, numbered so that totals hold, that deviate less than `known` in all layers together.
// `least` bounds the deviation of each layer. True: nothing better than what `layers` now are exists, `known`
// being what they were.
bool improve_sizes(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                   const std::vector<Wide>& least, Wide known, std::int64_t search_steps,
                   const Deadline& deadline, std::vector<Clusters>& layers);

}  // namespace evenkeel::internal
