// The homes that a method gives to experts, made from recorded steps.
#pragma once

#include <vector>

#include "evenkeel/placement/place.h"
#include "evenkeel/sim/method.h"
#include "evenkeel/sim/steps.h"

namespace evenkeel {

// Returns the homes of each layer, made from steps [begin, end). With `robust`, homes are made to be level on
// each of up to 8 equal parts of these steps. Throws InvalidArgument and Infeasible as place() does.
std::vector<LayerPlacement> homes_for(const Method& method, StepSource& steps, int begin, int end,
                                      const Topology& topology);

}  // namespace evenkeel
