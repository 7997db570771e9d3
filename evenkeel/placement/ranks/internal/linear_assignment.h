// Each of n rows to one of n columns, all different, at the least total cost.
//
// Method      Shortest augmenting paths with potentials, row by row (the Hungarian method).
// Cost        O(n^3) time at worst, O(n) memory beside the costs. Looks at the time in every O(n) steps.
// Guarantee   Least total, exact while the costs and their sums of n are integers below 2^53.
// Source      H. W. Kuhn, The Hungarian method for the assignment problem (1955); paths as in R. Jonker and
//             A. Volgenant (1987).
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

// costs [n, n], finite. The column of each row; empty if the deadline passed before.
std::vector<int> least_total_assignment(std::span<const double> costs, int n, const Deadline& deadline);

}  // namespace evenkeel::internal
