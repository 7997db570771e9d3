// How long something has taken, without the time in which this process was paused (SIGSTOP, a debugger, a
// paused virtual machine). A paused process cannot answer, so pauses must not count against a deadline.
//
// Method     A waiting loop calls look() often. Between two calls at most `longest_gap` counts, so a pause of
//            any length counts as one gap. The time still grows with every call, so a wait does reach its
//            deadline.
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
