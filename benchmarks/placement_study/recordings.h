// Compares placements made from one recording, from the sum of several, and from several at once, judged on a
// recording of a kind that none of them used.
#pragma once

#include "benchmarks/placement_study/recording.h"

namespace evenkeel::study {

// Splits the sequences into `parts` equal parts, each of one kind, and leaves out every part in turn.
void study_recordings(const Recording& recording, int parts);

}  // namespace evenkeel::study
