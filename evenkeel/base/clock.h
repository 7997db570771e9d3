// Two clocks, in seconds: the time that passes, and the time that the calling thread has had a CPU. Of the
// latter nothing counts that went into asking, over and over, whether something has come: who sleeps until
// then has none.
#pragma once

#include <time.h>

#include <chrono>

namespace evenkeel {

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// That the calling thread has spent asking in vain.
inline thread_local double thread_polling_seconds = 0;

inline double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - thread_polling_seconds;
}

}  // namespace evenkeel
