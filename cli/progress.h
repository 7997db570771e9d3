// Progress of long work: one line on stderr, on a terminal only.
#pragma once

#include <string>

#include "cli/experiment.h"

namespace evenkeel::cli {

// Writes "what 3/41" over itself and wipes it away at the end.
Progress progress_line(std::string what);

}  // namespace evenkeel::cli
