// Two clocks, in seconds: the time that passes, and the time that the calling thread has had a CPU.
#pragma once

#include <time.h>

#include <chrono>

namespace evenkeel {

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace evenkeel
