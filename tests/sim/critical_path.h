// A replayed step's critical path, as measured figures have it: of each phase of forward and of backward the
// slowest rank's seconds, without credit for what overlaps.
#pragma once

#include <array>
#include <span>

#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/sim/layer_seconds.h"

namespace evenkeel::published {

using PhaseSeconds = std::array<double, kPhases>;

PhaseSeconds critical_path(std::span<const PhaseSpan> spans, int num_ranks);
double sum(const PhaseSeconds& phases);

}  // namespace evenkeel::published
