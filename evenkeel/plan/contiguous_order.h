// Expresses a placement as an order of experts. If experts are renumbered in this order, plain contiguous
// expert parallelism, where rank r is home to ids [r E / P, (r + 1) E / P), gives the placement.
//
//   experts 0..5 on 2 ranks, rank 0 home to {1, 2, 5}, rank 1 to {0, 3, 4}:
//   contiguous_order   {1, 2, 5, 0, 3, 4}    what was expert 1 becomes expert 0, ...
//   new_ids of it      {3, 0, 1, 4, 5, 2}    expert 0 becomes expert 3, ...
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// [new id] the expert that gets it: the experts at home on rank 0 ascending, then those of rank 1, ... Throws
// InvalidArgument ("placement") unless every expert has one home and all ranks have equally many experts.
// `where` begins the error's reason: "layer 3: ", or nothing.
std::vector<ExpertId> contiguous_order(const LayerPlacement& layer, const std::string& where = {});

// [expert] its new id: the inverse of `order`. `order` must hold each of 0..size-1 once.
std::vector<ExpertId> new_ids(std::span<const ExpertId> order);

}  // namespace evenkeel
