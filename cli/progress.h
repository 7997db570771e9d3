// Progress of long work: one line on stderr, on a terminal only.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace evenkeel::cli {

// Writes "what 3/41, 12 s left" over itself and wipes it away at the end.
std::function<void(int done, int of)> progress_line(std::string what);

// Writes "what: best 123, bound 120, gap 2.4 %, 7 s" over itself, a few times a second.
std::function<void(double objective, double bound, double seconds)> gap_line(std::string what);

// Writes over what was shown before.
void show_line(std::string_view text);
// Wipes away what is shown, if anything is: at the end of the work, and before an error is printed.
void wipe_line();

}  // namespace evenkeel::cli
