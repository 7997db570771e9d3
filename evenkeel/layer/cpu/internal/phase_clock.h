// Where a rank is within a step, and where its CPU time goes.
#pragma once

#include <array>
#include <functional>
#include <utility>

#include "evenkeel/base/clock.h"
#include "evenkeel/layer/step_statistics.h"

namespace evenkeel::internal {

// Counts each stretch of the thread's CPU time to the phase entered last.
class PhaseClock {
 public:
  // `on_phase`, if any, is told of every phase when it begins.
  explicit PhaseClock(std::function<void(const StepMoment&)> on_phase = {})
      : on_phase_(std::move(on_phase)) {}

  void start(bool backward) {
    statistics_ = {};
    statistics_.backward = backward;
    wall_start_ = wall_seconds();
    since_ = thread_cpu_seconds();
    moment_ = {.backward = backward};
    tell();
  }
  void enter(Phase phase) {
    account();
    moment_.phase = phase;
    tell();
  }
  // The next chunk of the pass begins with this phase.
  void enter_chunk(Phase phase) {
    moment_.chunk = statistics_.chunks++;
    enter(phase);
  }
  // A phase that is of no chunk.
  void leave_chunk(Phase phase) {
    moment_.chunk = -1;
    enter(phase);
  }
  StepStatistics stop() {
    account();
    statistics_.wall_seconds = wall_seconds() - wall_start_;
    return statistics_;
  }
  StepStatistics& statistics() { return statistics_; }

 private:
  void account() {
    const double now = thread_cpu_seconds();
    statistics_.cpu_seconds[static_cast<std::size_t>(moment_.phase)] += now - since_;
    since_ = now;
  }
  void tell() const {
    if (on_phase_) on_phase_(moment_);
  }

  std::function<void(const StepMoment&)> on_phase_;
  StepStatistics statistics_;
  StepMoment moment_;
  double since_ = 0;
  double wall_start_ = 0;
};

}  // namespace evenkeel::internal
