// Free sizes with the same number of experts on every rank over all layers (Eq. 13).
//
// Problem     Clusters of each layer, each of any size; cluster c of every layer belongs to rank c. Renumber
//             the clusters of layers so that the sizes of each rank add up to its total, and where no
//             renumbering does, change sizes at the least cost in Eq. 1.
// Method      Clusters of a layer swap numbers while that brings totals nearer. Then, while a rank has one
//             too many, one expert moves to a rank with one too few, in the layer where that costs least
//             after exchanges at the new sizes.
// Guarantee   Totals hold. Not the least cost: where no renumbering is needed the clusters are as they were.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/partition.h"

namespace evenkeel::internal {

// Renumbers only; true if the totals then hold. tasks[l].most says which numbers a cluster may have.
bool renumber_to_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                        std::vector<Clusters>& layers, const Deadline& deadline);
// Renumbers, then changes sizes; false if it finds no way before the deadline.
bool resize_to_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                      std::vector<Clusters>& layers, const Deadline& deadline);

}  // namespace evenkeel::internal
