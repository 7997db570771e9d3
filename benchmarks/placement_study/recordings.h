// Placements made from one recording, from the sum of several and from several at once, on recordings of a
// kind that had no part in any.
#pragma once

#include "benchmarks/placement_study/recording.h"

namespace evenkeel::study {

// The sequences in `parts` equal parts, each of a kind. Every part is left out in turn.
void study_recordings(const Recording& recording, int parts);

}  // namespace evenkeel::study
