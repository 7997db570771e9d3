// Invariants of our own code. A broken one ends the program with a message in every build type: it is a
// defect here, never the caller's mistake (those are evenkeel::Error).
#pragma once

namespace evenkeel {
[[noreturn]] void invariant_broken(const char* condition, const char* file, int line);
}

#define EVENKEEL_CHECK(condition)                                   \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::evenkeel::invariant_broken(#condition, __FILE__, __LINE__); \
  } while (false)
