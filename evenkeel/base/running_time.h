// How long something has taken, without the time in which this process did not run: stopped (SIGSTOP, a
// debugger) or on a paused virtual machine, nobody in it could have answered.
//
// Method     Whoever waits looks often. Between two looks at most `longest_gap` counts, so a stop of
//            any length counts as one gap; and a wait that goes on ends, since every look counts what has
//            passed up to then.
#pragma once

#include <algorithm>
#include <chrono>

namespace evenkeel {

class RunningTime {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RunningTime(Clock::duration longest_gap) : longest_gap_(longest_gap) {}

  // The time that counts, up to now.
  Clock::duration look() { return look(Clock::now()); }
  Clock::duration look(Clock::time_point now) {
    counted_ += std::min(now - last_, longest_gap_);
    last_ = now;
    return counted_;
  }

 private:
  Clock::duration longest_gap_;
  Clock::time_point last_ = Clock::now();
  Clock::duration counted_{};
};

}  // namespace evenkeel
