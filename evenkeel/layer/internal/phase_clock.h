// Where a rank's CPU time goes within a step.
#pragma once

#include <time.h>

#include <array>

#include "evenkeel/layer/step_statistics.h"

namespace evenkeel::internal {

inline double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Counts each stretch of the thread's CPU time to the phase entered last.
class PhaseClock {
 public:
  void start(bool backward) {
    statistics_ = {};
    statistics_.backward = backward;
    wall_start_ = seconds_of(CLOCK_MONOTONIC);
    since_ = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    phase_ = Phase::plan;
  }
  void enter(Phase phase) {
    const double now = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    statistics_.cpu_seconds[static_cast<std::size_t>(phase_)] += now - since_;
    since_ = now;
    phase_ = phase;
  }
  StepStatistics stop() {
    enter(phase_);
    statistics_.wall_seconds = seconds_of(CLOCK_MONOTONIC) - wall_start_;
    return statistics_;
  }
  StepStatistics& statistics() { return statistics_; }

 private:
  StepStatistics statistics_;
  Phase phase_ = Phase::plan;
  double since_ = 0;
  double wall_start_ = 0;
};

}  // namespace evenkeel::internal
