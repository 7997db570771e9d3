// From how many tokens a step on each method is predicted to be faster than plain EP at the recorded routing.
//
// Method   A few of the judged steps and layers are made larger and smaller, by powers of two, as loads that
//          come from all ranks alike. Of the sizes from which on the method stays faster by a hundredth, the
//          least is narrowed down between two powers.
// Assumes  smaller steps are as uneven as recorded ones; chance makes them more so. Memory has no limit.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "evenkeel/sim/compare.h"

namespace evenkeel::internal {

// By method; `homes` of each by layer. Nothing for plain EP, and where no size is enough.
std::vector<std::optional<double>> break_even_tokens(StepSource& steps, const GroupShape& shape,
                                                     const SimSetup& setup, const CompareOptions& options,
                                                     std::span<const std::vector<LayerPlacement>> homes);

}  // namespace evenkeel::internal
