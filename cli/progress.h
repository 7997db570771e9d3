// Progress of long work: one line on stderr, on a terminal only.
#pragma once

#include <functional>
#include <string>

namespace evenkeel::cli {

// Writes "what 3/41" over itself and wipes it away at the end.
std::function<void(int done, int of)> progress_line(std::string what);

// Writes "what: best 123, bound 120, gap 2.4 %, 7 s" over itself, a few times a second.
std::function<void(double objective, double bound, double seconds)> gap_line(std::string what);
// Wipes what gap_line has left.
void wipe_line();

}  // namespace evenkeel::cli
