// Whether an experiment fits into the memory that there is, before anything of it is made.
#pragma once

#include <cstdint>

#include "cli/experiment.h"

namespace evenkeel::cli {

// Throws Unsupported, with the bytes that are needed and those that there are, where the set-up cannot fit
// with so many tokens over all ranks. What is counted is held at one time for certain: weights, their packed
// forms, rows and results; arenas and scratch come on top. The set-up needs no experts and no tokens yet.
void require_memory(const ExperimentSetup& setup, std::int64_t tokens);

}  // namespace evenkeel::cli
