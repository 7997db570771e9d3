// The critical path of a replayed step, defined as for measured figures: per phase of forward and backward,
// the slowest rank's seconds, without credit for overlap.
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
