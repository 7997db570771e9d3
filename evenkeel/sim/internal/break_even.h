// Predicts, for each method, the number of tokens per step from which the method is faster than plain EP with
// the recorded routing.
//
// Method    The loads of a few judged steps and layers are scaled by powers of two, as if their tokens came
//           evenly from all ranks. The search finds the smallest power from which the method stays at least 1
//           % faster, then narrows the result down between this power and the one before.
// Assumes   Smaller steps are as uneven as the recorded ones; in reality, random variation makes them more
//           uneven. Memory is unlimited.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "evenkeel/sim/compare.h"

namespace evenkeel::internal {

// One result per method. `homes` has the homes of each layer for each method. A result is empty for plain EP,
// and for a method that is not faster at any size.
std::vector<std::optional<double>> break_even_tokens(StepSource& steps, const GroupShape& shape,
                                                     const SimSetup& setup, const CompareOptions& options,
                                                     std::span<const std::vector<LayerPlacement>> homes);

}  // namespace evenkeel::internal
