// Two clocks, in seconds: wall time, and the CPU time of the calling thread. CPU time spent in polling loops
// is left out, because a thread that sleeps while it waits uses none.
#pragma once

#include <time.h>

#include <chrono>

namespace evenkeel {

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time that the calling thread has spent polling without success.
inline thread_local double thread_polling_seconds = 0;

inline double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - thread_polling_seconds;
}

}  // namespace evenkeel
