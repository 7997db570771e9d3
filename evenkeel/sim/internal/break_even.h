// Predicts the number of tokens per step from which on each method is faster than plain EP, at the recorded
// routing.
//
// Method    The loads of a few judged steps and layers are scaled by powers of two and taken to come evenly
//           from all ranks. The search finds the smallest power from which on the method stays at least 1 %
//           faster, then narrows it down between two powers.
// Assumes   Smaller steps are as uneven as the recorded ones; in truth chance makes them more uneven. Memory
//           has no limit.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "evenkeel/sim/compare.h"

namespace evenkeel::internal {

// One result per method. `homes` has each method's homes by layer. A result is empty for plain EP, and if no
// size is large enough.
std::vector<std::optional<double>> break_even_tokens(StepSource& steps, const GroupShape& shape,
                                                     const SimSetup& setup, const CompareOptions& options,
                                                     std::span<const std::vector<LayerPlacement>> homes);

}  // namespace evenkeel::internal
