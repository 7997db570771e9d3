// Checks invariants of our own code. A broken invariant ends the program with a message in every build type:
// it is a bug in evenkeel, never the caller's mistake (which throws evenkeel::Error).
#pragma once

namespace evenkeel {
[[noreturn]] void invariant_broken(const char* condition, const char* file, int line);
}

#define EVENKEEL_CHECK(condition)                                   \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::evenkeel::invariant_broken(#condition, __FILE__, __LINE__); \
  } while (false)
