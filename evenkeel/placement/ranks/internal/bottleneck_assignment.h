// Each of n rows to one of n columns, all different, so that the largest cost is least.
//
// Method      Binary search over the costs; for each, a matching by augmenting paths over costs no larger.
// Cost        O(n^3 log n) at worst; O(n^2 log n) as met. Looks at the time in every O(n) steps.
// Guarantee   Least largest cost.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

// costs [n, n], infinity where forbidden. The column of each row; empty if the deadline passed before.
std::vector<int> least_largest_assignment(std::span<const double> costs, int n, const Deadline& deadline);

}  // namespace evenkeel::internal
